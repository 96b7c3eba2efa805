package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// firstRelease is the commit that stands for the release before this one while no release has a tag.
const firstRelease = "a6e8cceb0551527d764611ff24c9a786f694e89d"

// EarlierRelease builds commands of the last release before this commit from the history of a checkout, and
// returns the directory with the commands. Each commit is built once, in the directory .cache of the
// checkout. root is the directory of the checkout.
func EarlierRelease(ctx context.Context, root string, commands ...string) (dir string, err error) {
	tag, err := git(ctx, root, "tag", "--list", "v[0-9]*", "--merged", "HEAD", "--no-contains", "HEAD", "--sort", "-version:refname")
	if err != nil {
		return "", err
	}
	release, _, _ := strings.Cut(tag, "\n")
	if release == "" {
		release = firstRelease
	}
	commit, err := git(ctx, root, "rev-parse", "--verify", release+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("this checkout does not have the commit of the last release, %.12s: fetch the whole history with its tags (git fetch --unshallow --tags; in GitHub's checkout action, fetch-depth: 0): %w", release, err)
	}
	root, err = filepath.Abs(root)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(root, ".cache", "releases", commit)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // as the rest of .cache
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work) //nolint:errcheck // a later build has a directory of its own
	sources, built := filepath.Join(work, "sources"), filepath.Join(work, "bin")
	if err := checkOut(ctx, root, commit, sources); err != nil {
		return "", err
	}
	if err := Build(ctx, sources, built, nil, commands...); err != nil {
		return "", fmt.Errorf("the last release, %.12s: %w", release, err)
	}
	if err := os.Rename(built, dir); err != nil && !errors.Is(err, os.ErrExist) { // another process may have been faster
		return "", err
	}
	return dir, nil
}

// checkOut writes the files of a commit to a new directory. It leaves no trace in the checkout, as a work
// tree would.
func checkOut(ctx context.Context, root, commit, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	archive := filepath.Join(dir, "sources.tar")
	if _, err := git(ctx, root, "archive", "--format=tar", "--output", archive, commit); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w\n%s", err, out)
	}
	return os.Remove(archive)
}

// git runs git in a checkout, and returns its trimmed output.
func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(problem.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

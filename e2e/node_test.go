package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// npmPatience bounds the installation of packages and one run of a Node test.
const npmPatience = 5 * time.Minute

// nodeTest runs the Node tests of a directory, after npm ci if its packages are not those of the lockfile. env is added
// to the environment.
func nodeTest(t *testing.T, dir string, env ...string) {
	t.Helper()
	node, npm := tool(t, "node"), tool(t, "npm")
	ctx, cancel := context.WithTimeout(t.Context(), npmPatience)
	defer cancel()
	install(ctx, t, npm, dir)
	if out, err := runNode(ctx, node, dir, env...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// runNode runs the Node tests of a directory whose packages are there.
func runNode(ctx context.Context, node, dir string, env ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, node, "--test")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v: %w", cmd, err)
	}
	return out, err
}

var installing sync.Mutex

// install installs the packages of a directory unless they are there.
func install(ctx context.Context, t *testing.T, npm, dir string) {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	if installed(dir) {
		return
	}
	cmd := exec.CommandContext(ctx, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		missing(t, "%v: %v\n%s", cmd, err, out)
	}
}

// installed reports whether node_modules holds what the lockfile says: npm leaves a copy of it there.
func installed(dir string) bool {
	want, err := lockedPackages(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return false
	}
	delete(want, "") // the directory itself
	have, err := lockedPackages(filepath.Join(dir, "node_modules", ".package-lock.json"))
	return err == nil && maps.Equal(have, want)
}

type lockedPackage struct {
	Version, Integrity string
	Optional           bool
}

// lockedPackages returns the packages of a lockfile. It leaves out optional ones: npm installs only those for this platform.
func lockedPackages(file string) (map[string]lockedPackage, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var lock struct{ Packages map[string]lockedPackage }
	err = json.Unmarshal(b, &lock)
	maps.DeleteFunc(lock.Packages, func(_ string, p lockedPackage) bool { return p.Optional })
	return lock.Packages, err
}

func TestOpenAINodeWorks(t *testing.T) {
	tool(t, "node")
	eachTopology(t, flags{worker: []string{"--pace", "200"}}, func(t *testing.T, w *whence) {
		nodeTest(t, "sdk-node", "WHENCE_URL=http://"+w.api)
		w.idle(t) // the streams that were aborted, too
	})
}

func TestPageWorksInABrowser(t *testing.T) {
	t.Parallel()
	tool(t, "node")
	chromium := tool(t, "chromium", "chromium-browser", "google-chrome")
	w := run(t, allInOne, flags{worker: []string{"--pace", "30"}})
	nodeTest(t, "browser", "WHENCE_URL=http://"+w.api, "CHROMIUM="+chromium)
	w.idle(t)
}

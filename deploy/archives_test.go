package deploy

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/tier"
)

// TestImagesWithoutAContainerEngine makes the archives of the guide, in CI, and runs the entry point
// of each image from its unpacked files.
func TestImagesWithoutAContainerEngine(t *testing.T) {
	tier.Full(t)
	if os.Getenv("CI") != "true" {
		t.Skip("CI=true go test ./deploy builds the images")
	}
	dir := t.TempDir()
	for _, build := range [][]string{{"-C", "../scripts/tools/release", "build", "-o", dir, "./image"}, {"-C", "..", "build", "-o", filepath.Join(dir, "whence"), "."}} {
		if out, err := exec.Command("go", build...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if out, err := exec.Command(filepath.Join(dir, "image"), "-archives", dir, "-registry", registry, "-version", version(t), filepath.Join(dir, "whence")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, role := range []string{"api-service", "chat-service", "llm-worker", "gateway"} {
		root := t.TempDir()
		tags, entry := unpackArchive(t, filepath.Join(dir, role+".tar"), root)
		if want := registry + "/" + role + ":" + version(t); !slices.Equal(tags, []string{want}) {
			t.Errorf("the image of %s has the names %v; want %s", role, tags, want)
		}
		help, err := exec.Command(filepath.Join(root, entry[0]), append(entry[1:], "--help")...).CombinedOutput()
		if err != nil || !strings.Contains(string(help), "--listen") {
			t.Errorf("%v of %s: %v\n%s", entry, role, err, help)
		}
	}
}

// unpackArchive writes the files of the only image of an archive to root, and returns the image's
// names and entry point.
func unpackArchive(t *testing.T, archive, root string) (tags, entry []string) {
	t.Helper()
	parts := t.TempDir()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	untar(t, f, parts)
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	readJSON(t, filepath.Join(parts, "manifest.json"), &manifest)
	if len(manifest) != 1 {
		t.Fatalf("%s has %d images", archive, len(manifest))
	}
	for _, layer := range manifest[0].Layers {
		packed, err := os.Open(filepath.Join(parts, layer))
		if err != nil {
			t.Fatal(err)
		}
		files, err := gzip.NewReader(packed)
		if err != nil {
			t.Fatal(err)
		}
		untar(t, files, root)
		_ = packed.Close()
	}
	var config struct {
		Config struct{ Entrypoint []string }
	}
	readJSON(t, filepath.Join(parts, manifest[0].Config), &config)
	if len(config.Config.Entrypoint) == 0 {
		t.Fatalf("%s has no entry point", archive)
	}
	return manifest[0].RepoTags, config.Config.Entrypoint
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// untar writes the regular files of an archive that this test has made.
func untar(t *testing.T, archive io.Reader, to string) {
	t.Helper()
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || !filepath.IsLocal(h.Name) {
			t.Fatalf("%v: %v", h, err)
		}
		file := filepath.Join(to, h.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, h.FileInfo().Mode())
		if err == nil {
			_, err = io.Copy(out, r) //nolint:gosec // the size is known
			err = errors.Join(err, out.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

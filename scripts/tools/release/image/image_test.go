package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/x509"
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var dist = flag.String("dist", "../../../../dist", "`directory` of goreleaser; scripts/release makes it")

// built writes the layout of the release in dist and reads it back.
func built(t *testing.T) (*release, map[string]v1.ImageIndex) {
	t.Helper()
	r, err := read(*dist)
	if err != nil {
		t.Fatalf("%v; scripts/release test makes the binaries", err)
	}
	all, err := r.images()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := write(dir, r.Version, all); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]v1.ImageIndex{}
	for _, d := range manifest.Manifests {
		one, err := index.ImageIndex(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(one); err != nil {
			t.Error(err)
		}
		role := strings.TrimSuffix(strings.TrimPrefix(d.Annotations[refName], "whence/"), ":"+r.Version)
		stored[role] = one
	}
	return r, stored
}

// unpack writes the files of an image to a directory and returns it, with the names of the files.
func unpack(t *testing.T, img v1.Image) (root string, names []string) {
	t.Helper()
	root = t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil { //nolint:gosec // the image's user reads it
		t.Fatal(err)
	}
	content := mutate.Extract(img)
	defer content.Close()
	for files := tar.NewReader(content); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return root, names
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Mode&0o022 != 0 {
			t.Errorf("%s: owner %d, mode %o; only root may write the image's files", h.Name, h.Uid, h.Mode)
		}
		names = append(names, h.Name)
		to := filepath.Join(root, filepath.FromSlash(h.Name))
		b, err := io.ReadAll(files)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755) //nolint:gosec // likewise
		}
		if err == nil {
			err = os.WriteFile(to, b, os.FileMode(h.Mode)) //nolint:gosec // likewise
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// command returns the image's entry point with arguments. Run by root, it has only the files and
// the user of the image, as in a container.
func command(t *testing.T, root string, c *v1.Config, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(root, c.Entrypoint[0]), append(c.Entrypoint[1:], args...)...)
	cmd.Env = c.Env
	if os.Getuid() == 0 {
		cmd.Path, cmd.Dir = c.Entrypoint[0], "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	}
	return cmd
}

func TestImagesHaveTheirEntryPointAndNothingElse(t *testing.T) {
	r, all := built(t)
	if len(all) != len(roles) {
		t.Fatalf("%d images, want %d", len(all), len(roles))
	}
	var layers []v1.Hash
	for _, role := range roles {
		manifest, err := all[role.name].IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(manifest.Manifests) != len(r.binaries) {
			t.Errorf("%s has %d architectures, and there are binaries for %d", role.name, len(manifest.Manifests), len(r.binaries))
		}
		for _, d := range manifest.Manifests {
			img, err := all[role.name].Image(d.Digest)
			if err != nil {
				t.Fatal(err)
			}
			file, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if d.Platform.Architecture != file.Architecture || file.OS != "linux" {
				t.Errorf("%s: the image of %s is for %s/%s", role.name, d.Platform, file.OS, file.Architecture)
			}
			c := &file.Config
			if c.User != "65532" || !slices.Equal(c.Entrypoint, append([]string{"/whence"}, role.args...)) || !slices.Equal(c.Cmd, []string{"--listen", "0.0.0.0:" + role.port}) {
				t.Errorf("%s: user %s, entry point %q, command %q", role.name, c.User, c.Entrypoint, c.Cmd)
			}
			if _, ok := c.ExposedPorts[role.port+"/tcp"]; !ok {
				t.Errorf("%s exposes %v", role.name, c.ExposedPorts)
			}
			if file.Architecture != runtime.GOARCH {
				continue
			}
			m, err := img.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range m.Layers {
				if !slices.Contains(layers, l.Digest) {
					layers = append(layers, l.Digest)
				}
			}
			root, names := unpack(t, img)
			slices.Sort(names)
			if want := []string{"etc/group", "etc/passwd", "etc/ssl/certs/ca-certificates.crt", "whence"}; !slices.Equal(names, want) {
				t.Errorf("%s has the files %q", role.name, names)
			}
			out, err := command(t, root, c, "--help").CombinedOutput()
			if want := "\n  " + strings.Join(append([]string{"whence"}, role.args...), " ") + " "; err != nil || !bytes.Contains(out, []byte(want)) {
				t.Errorf("%s --help: %v\n%s", role.name, err, out)
			}
			out, err = command(t, root, &v1.Config{Entrypoint: []string{"/whence"}}, "version").CombinedOutput()
			if err != nil || !bytes.HasPrefix(out, []byte("whence v"+r.Version)) || r.Commit != "none" && !bytes.Contains(out, []byte(" (commit "+r.Commit[:12]+" of 20")) {
				t.Errorf("whence version: %v, %s; want %s and %s", err, out, r.Version, r.Commit)
			}
		}
	}
	if len(layers) != 2 {
		t.Errorf("the images have %d layers between them, not 2", len(layers))
	}
}

func TestRootsAreCertificates(t *testing.T) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots()) || len(pool.Subjects()) < 50 { //nolint:staticcheck // not the system's pool
		t.Error("there are hardly any certificates")
	}
}

var greeting = regexp.MustCompile(`^Whence streams \S+ on (http://\S+?):? `)

// TestImageOfEverythingAnswers runs the image's entry point and reads a stream.
func TestImageOfEverythingAnswers(t *testing.T) {
	_, all := built(t)
	manifest, err := all["whence"].IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(manifest.Manifests, func(d v1.Descriptor) bool { return d.Platform.Architecture == runtime.GOARCH })
	if at < 0 {
		t.Fatalf("there is no image for %s", runtime.GOARCH)
	}
	img, err := all["whence"].Image(manifest.Manifests[at].Digest)
	if err != nil {
		t.Fatal(err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root, _ := unpack(t, img)
	cmd := command(t, root, &file.Config, "--listen", "127.0.0.1:0", "--chat-listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0")
	var logs bytes.Buffer
	cmd.Stderr = &logs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	origin := ""
	lines := bufio.NewScanner(out)
	for origin == "" && lines.Scan() {
		if m := greeting.FindStringSubmatch(lines.Text()); m != nil {
			origin = m[1]
		}
	}
	if origin != "" {
		resp, err := http.Post(origin+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"whence-tiny","stream":true,"messages":[{"role":"user","content":"Count to 5."}]}`)) //nolint:noctx // of a test
		if err != nil {
			t.Error(err)
		} else {
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || !bytes.HasSuffix(text, []byte("data: [DONE]\n\n")) {
				t.Errorf("%v: %s", err, text)
			}
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil || origin == "" {
		t.Errorf("the process printed the address %q and ended: %v\n%s", origin, err, &logs)
	}
}

func TestPushedImagesCanBePulled(t *testing.T) {
	r, all := built(t)
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	if err := upload(host+"/whence-dev", "api-service", r.Version, all["api-service"]); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/whence-dev/api-service:" + r.Version)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(pulled); err != nil {
		t.Error(err)
	}
}

func TestDirectoryWithoutBinariesIsRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := read(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for file, text := range map[string]string{"metadata.json": `{"version":"1.0.0","date":"2026-11-24T10:00:00Z"}`, "artifacts.json": `[{"type":"Binary","name":"whence","goos":"darwin","goarch":"arm64"}]`} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := read(dir); err == nil || !strings.Contains(err.Error(), "no binary for Linux") {
		t.Error(err)
	}
}

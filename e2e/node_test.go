package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/tier"
)

// npmPatience bounds the installation of packages, and nodePatience one run of a Node test or of an
// agent.
const npmPatience, nodePatience = 5 * time.Minute, 15 * time.Minute

// nodeTest runs the Node tests of a directory, or of some of its files, after npm ci if the installed
// packages differ from the lockfile. env is added to the environment.
func nodeTest(t *testing.T, dir string, files []string, env ...string) {
	t.Helper()
	node, npm := tool(t, "node"), tool(t, "npm")
	install(t, npm, dir)
	ctx, cancel := context.WithTimeout(t.Context(), nodePatience)
	defer cancel()
	if out, err := runNode(ctx, node, dir, files, env...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// runNode runs the Node tests of a directory whose packages are installed, or those of some files. If
// tests fail, it returns only what Node prints of these.
func runNode(ctx context.Context, node, dir string, files []string, env ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, node, append([]string{"--test", "--test-reporter=spec"}, files...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	endsWithChildren(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v: %w", cmd, err)
	}
	if _, failed, found := bytes.Cut(out, []byte("failing tests:")); found {
		out = bytes.TrimSpace(failed)
	}
	return out, err
}

// endsWithChildren makes the end of a command's context also kill its child processes. They hold
// its output open, so Wait would wait for them.
func endsWithChildren(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
}

var installing sync.Mutex

// install installs the packages of a directory unless they are installed.
func install(t *testing.T, npm, dir string) {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	if installed(dir) {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), npmPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		missing(t, "%v: %v\n%s", cmd, err, out)
	}
}

// installed reports whether node_modules matches the lockfile, of which npm leaves a copy there.
// The optional packages for this platform must be there, too, such as the binaries of agents: npm
// continues without an optional package that it cannot download.
func installed(dir string) bool {
	want, err := lockedPackages(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return false
	}
	delete(want, "") // the directory itself
	have, err := lockedPackages(filepath.Join(dir, "node_modules", ".package-lock.json"))
	if err != nil {
		return false
	}
	for name, p := range want {
		if p.Optional && !p.here() {
			continue
		}
		if is := have[name]; is.Version != p.Version || is.Integrity != p.Integrity {
			return false
		}
		if _, err := os.Stat(filepath.Join(dir, name, "package.json")); err != nil {
			return false
		}
	}
	for name := range have {
		if _, known := want[name]; !known {
			return false
		}
	}
	return true
}

type lockedPackage struct {
	Version, Integrity string
	Optional           bool
	OS, CPU, Libc      []string
}

// here reports whether an optional package is for this platform.
func (p *lockedPackage) here() bool {
	system, arch, libc := runtime.GOOS, runtime.GOARCH, "glibc"
	if system == "windows" {
		system = "win32"
	}
	if arch == "amd64" {
		arch = "x64"
	}
	if musl, _ := filepath.Glob("/lib/ld-musl-*"); len(musl) > 0 {
		libc = "musl"
	}
	return slices.Contains(p.OS, system) && slices.Contains(p.CPU, arch) && (len(p.Libc) == 0 || slices.Contains(p.Libc, libc))
}

// lockedPackages returns the packages of a lockfile.
func lockedPackages(file string) (map[string]lockedPackage, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var lock struct{ Packages map[string]lockedPackage }
	err = json.Unmarshal(b, &lock)
	return lock.Packages, err
}

// TestMissingBinariesAreInstalled: packages for this platform must be there, packages for other
// platforms need not.
func TestMissingBinariesAreInstalled(t *testing.T) {
	t.Parallel()
	const (
		tool  = `"node_modules/tool":{"version":"1","integrity":"a"}`
		other = `"node_modules/tool-aix":{"version":"1","optional":true,"os":["aix"],"cpu":["ppc64"]}`
	)
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	own := fmt.Sprintf(`"node_modules/tool-own":{"version":"1","optional":true,"os":[%q],"cpu":[%q]}`, runtime.GOOS, arch)
	dir := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		file = filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("package-lock.json", `{"packages":{"":{},`+tool+","+own+","+other+`}}`)
	write("node_modules/tool/package.json", "{}")
	write("node_modules/.package-lock.json", `{"packages":{`+tool+`}}`)
	if installed(dir) {
		t.Error("the missing package for this platform is not detected")
	}
	write("node_modules/.package-lock.json", `{"packages":{`+tool+","+own+`}}`)
	if installed(dir) {
		t.Error("the missing files of the package for this platform are not detected")
	}
	write("node_modules/tool-own/package.json", "{}")
	if !installed(dir) {
		t.Error("a package for another platform counts as missing")
	}
	write("node_modules/.package-lock.json", `{"packages":{`+tool+","+own+`,"node_modules/more":{}}}`)
	if installed(dir) {
		t.Error("a package outside the lockfile is not detected")
	}
}

// TestOpenAINodeWorks runs the tests of client libraries that the embedded model can answer.
func TestOpenAINodeWorks(t *testing.T) {
	tier.Full(t)
	tool(t, "node")
	all, err := filepath.Glob("sdk-node/*.test.mjs")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, name := range all {
		if name = filepath.Base(name); name != "session.test.mjs" { // see TestNodeLibrariesHoldASession
			files = append(files, name)
		}
	}
	eachTopology(t, flags{worker: []string{"--pace", "200"}}, func(t *testing.T, w *whence) {
		nodeTest(t, "sdk-node", files, "WHENCE_URL=http://"+w.api)
		w.idle(t) // including the aborted streams
	})
}

// TestPageWorksInABrowser runs the tests of the page in Chromium: in the short tier, those of answers,
// of readers and of conversations.
func TestPageWorksInABrowser(t *testing.T) {
	t.Parallel()
	tool(t, "node")
	chromium := tool(t, "chromium", "chromium-browser", "google-chrome")
	install(t, tool(t, "npm"), "axe")
	w := run(t, allInOne, flags{worker: []string{"--pace", "30"}})
	files := []string{"chat.test.mjs", "eventsource.test.mjs", "websocket.test.mjs"}
	if tier.IsFull() {
		files = nil
	}
	nodeTest(t, "browser", files, "WHENCE_URL=http://"+w.api, "CHROMIUM="+chromium)
	w.idle(t)
}

// TestNodeLibrariesHoldASession plays a session of five turns with each client library of npm.
func TestNodeLibrariesHoldASession(t *testing.T) {
	t.Parallel()
	tool(t, "node")
	w := sessionService(t)
	nodeTest(t, "sdk-node", []string{"session.test.mjs"}, "WHENCE_URL="+onceEach(t, w.url("")))
	w.idle(t)
}

package newcomer

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/loopback"
)

// patience bounds each wait; go run may have to build.
const patience = 5 * time.Minute

// A user has a machine on which the ports of the pages may be in use.
type user struct {
	t     *testing.T
	adapt *strings.Replacer // commands of the pages
	env   []string
}

func newUser(t *testing.T) *user {
	t.Helper()
	for _, name := range []string{"bash", "curl", "go", "grep"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	var addrs [4]string
	for i := range addrs {
		addr, err := loopback.FreeAddr() // one process after another listens on it
		if err != nil {
			t.Fatal(err)
		}
		addrs[i] = addr
	}
	bin := t.TempDir() + "/"
	// On a terminal curl shows no progress beside an answer.
	if err := os.WriteFile(bin+".curlrc", []byte("silent\nshow-error\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &user{
		t: t,
		adapt: strings.NewReplacer(
			"127.0.0.1:8080", addrs[0], "127.0.0.1:8081", addrs[1], "127.0.0.1:8082", addrs[2], "127.0.0.1:8083", addrs[3],
			"bin/whence chat", "WHENCE_LISTEN="+addrs[1]+" "+bin+"whence chat", "bin/whence api", "WHENCE_LISTEN="+addrs[0]+" "+bin+"whence api", "bin/", bin,
			"--pace 10", "--pace 2", "--pace 5", "--pace 2",
		),
		// The ports of `go run .`, and the address that the commands of operators call.
		env: append(os.Environ(), "WHENCE_CHAT_LISTEN="+addrs[1], "WHENCE_WORKER_LISTEN="+addrs[2], "WHENCE_URL=http://"+addrs[0], "FIRST="+addrs[0], "CURL_HOME="+bin),
	}
}

// A terminal is a shell whose user reads its output.
type terminal struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	output logtest.Log
	ended  chan struct{}
	err    error // of the shell, once it has ended
}

// start runs a script in a process group of its own, until the test ends.
func (u *user) start(script string) *terminal {
	u.t.Helper()
	s := &terminal{cmd: exec.CommandContext(u.t.Context(), "bash", "-c", script), ended: make(chan struct{})}
	s.cmd.Dir, s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = "../..", u.env, &s.output, &s.output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Cancel = func() error { return syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		u.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		s.err = s.cmd.Wait()
	}()
	u.t.Cleanup(func() { <-s.ended }) // the test's context ends it
	return s
}

// open starts a shell that reads commands.
func (u *user) open() *terminal { return u.start("exec bash -m") }

// paste runs commands of a page in the shell, and returns their output.
func (u *user) paste(s *terminal, b block) string {
	u.t.Helper()
	before := len(s.output.String())
	end := fmt.Sprintf("end of line %d", b.line)
	if _, err := io.WriteString(s.in, u.adapt.Replace(b.text)+"echo "+end+"\n"); err != nil {
		u.t.Fatal(err)
	}
	u.await(s, end)
	u.t.Logf("$ %s%s", b.text, s.output.String()[before:])
	return s.output.String()[before:]
}

// await waits until the terminal shows a text.
func (u *user) await(s *terminal, text string) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ended := false; !strings.Contains(s.output.String(), text); {
		if ended || ctx.Err() != nil {
			u.t.Fatalf("no %q in %s", text, s.output.String())
		}
		select {
		case <-tick.C:
		case <-s.ended:
			ended = true // all output is here
		case <-ctx.Done():
		}
	}
}

// run runs commands of a page in a second terminal to their end, and returns their output.
func (u *user) run(b block) string {
	u.t.Helper()
	s := u.start(u.adapt.Replace(b.text) + "wait\n")
	if <-s.ended; s.err != nil {
		u.t.Fatalf("line %d: %v\n%s", b.line, s.err, s.output.String())
	}
	return s.output.String()
}

// interrupt presses Ctrl-C, and waits until the commands have ended.
func (s *terminal) interrupt() {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGINT)
	<-s.ended
}

// want compares an output with a block of the page.
func (u *user) want(output func() string, page block) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), 30*time.Second)
	defer cancel()
	for missing(output(), page) != "" {
		select {
		case <-time.After(20 * time.Millisecond): // a log may be late
		case <-ctx.Done():
			u.t.Errorf("line %d: no line %q in\n%s", page.line, missing(output(), page), output())
			return
		}
	}
}

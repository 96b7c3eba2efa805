package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	streamstory "github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/lab"
)

// liveID returns the id of the only live stream, as `whence streams` lists it.
func liveID(t *testing.T, url string) (id string) {
	t.Helper()
	polltest.Eventually(t, "whence streams lists a stream with a few tokens", func() bool {
		out, logs, status := output(t, "whence streams", "--url", url, "--json")
		var all []streamstory.Story
		if err := json.Unmarshal([]byte(out), &all); err != nil || status != 0 {
			t.Fatalf("status %d, %v, %s", status, err, logs)
		}
		if len(all) != 1 || all[0].Tokens.Delivered < 5 {
			return false
		}
		id = all[0].ID
		return true
	})
	return id
}

// TestCommandsOfAUser asks questions on the command line, stops an answer from another process and with Ctrl-C, and looks
// at the endings.
func TestCommandsOfAUser(t *testing.T) {
	t.Parallel()
	p := start(t, "whence serve", "--listen", "127.0.0.1:0", "--log-json", "--chat-listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0", "--pace", "30")
	url := "http://" + p.listening(t)
	p.greeting(t)

	out, logs, status := output(t, "whence run", "--temperature", "0", "What is 2 + 3?", "--url", url)
	if status != 0 || !strings.Contains(out, "5") || !strings.HasSuffix(out, "\n") || logs != "" {
		t.Errorf("run: status %d, %q, %q", status, out, logs)
	}
	ask := exec.CommandContext(t.Context(), binary(t, "whence"), "run", "--url", url, "--temperature", "0", "--verbose")
	ask.Env, ask.Stdin = lab.Environment(), strings.NewReader("What is 2 + 3?\n")
	both, err := ask.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(both), out) || !strings.Contains(string(both), "[completed by engine; ") {
		t.Errorf("run with standard input: %v, %q", err, both)
	}

	long := []string{"--url", url, "--max-tokens", "900", "Count to 300."}
	stopped := start(t, "whence run", long...)
	id := liveID(t, url)
	if out, logs, status := output(t, "whence stop", id, "--url", url); status != 0 || !strings.HasPrefix(out, id+" is stopping") {
		t.Errorf("stop: status %d, %q, %q", status, out, logs)
	}
	stopped.exitWith(t, 1)
	wantEnding(t, stopped, "another request", id)
	if out, logs, status := output(t, "whence why", "--url", url, id); status != 0 || !strings.Contains(out, "user_stop by client") {
		t.Errorf("why: status %d, %q, %q", status, out, logs)
	}

	left := start(t, "whence run", long...)
	id = liveID(t, url)
	if err := left.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	left.exitWith(t, 130)
	wantEnding(t, left, "client", id)
	if out, logs, status := output(t, "whence streams", "--ended", "--reason", "user_stop", "--url", url); status != 0 || strings.Count(out, "user_stop by client") != 2 {
		t.Errorf("streams: status %d, %q, %q", status, out, logs)
	}
	if out, logs, status := output(t, "whence top", "--url", url); status != 0 || !strings.Contains(out, "2 user_stop by client") || !strings.Contains(out, "llm-worker/0 healthy") {
		t.Errorf("top: status %d, %q, %q", status, out, logs)
	}
	if out, logs, status := output(t, "whence stop", "nobody", id, "--url", url); status != 1 || !strings.Contains(logs, "nobody: ") {
		t.Errorf("stop of a stream that is not there: status %d, %q, %q", status, out, logs)
	}
}

// wantEnding wants that run has printed who stopped its stream.
func wantEnding(t *testing.T, p *process, by, id string) {
	t.Helper()
	if got := p.Log.String(); !strings.Contains(got, "[user_stop by "+by+" (client > api-service)") || !strings.Contains(got, "[whence why "+id+"]") {
		t.Errorf("run prints %q", got)
	}
	if !strings.Contains(p.Out.String(), "1, ") {
		t.Errorf("run printed the answer %q", p.Out)
	}
}

// TestCommandRunIsInterruptedWhileItReads: before a question is asked, a signal ends the process as the shell expects.
func TestCommandRunIsInterruptedWhileItReads(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), binary(t, "whence"), "run", "--model", "m", "-")
	cmd.Env = lab.Environment()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	if _, err := in.Write(make([]byte, 256<<10)); err != nil { // more than a pipe holds, so the process reads
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the state has the result
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("run ends with %v, want the signal", cmd.ProcessState)
	}
}

package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// A tab is what a tab of browser/reader.html has seen of its stream.
type tab struct {
	ID     string
	Shown  string // on the page
	Text   string
	IDs    []string // of events
	Names  []string // of events that are no deltas
	Opened int      // connections
	Error  *refusal // if the stream failed
	GaveUp bool     // EventSource comes back no more
}

// tabsPatience bounds one command: some tens of tabs on a machine that does other things, too, and a stream in each.
const tabsPatience = 2 * time.Minute

// tabs is a browser with tabs, which browser/readers.mjs drives.
type tabs struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

func openBrowser(t *testing.T) *tabs {
	t.Helper()
	node, npm, chromium := tool(t, "node"), tool(t, "npm"), tool(t, "chromium", "chromium-browser", "google-chrome")
	install(t, npm, "browser")
	cmd := exec.Command(node, "readers.mjs")
	cmd.Dir = "browser"
	cmd.Env = append(os.Environ(), "CHROMIUM="+chromium)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // which ends it
		hung := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil {
			t.Errorf("the browser's end: %v", err)
		}
		hung.Stop()
	})
	return &tabs{t, in, bufio.NewReader(out)}
}

// do has the browser do something, and returns the tabs if that is the answer.
func (b *tabs) do(what string, fields map[string]any) []tab {
	b.t.Helper()
	command := map[string]any{"do": what}
	for name, value := range fields {
		command[name] = value
	}
	line, err := json.Marshal(command)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(line, '\n')); err != nil {
		b.t.Fatal(err)
	}
	type answer struct {
		line []byte
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := b.out.ReadBytes('\n') // or the end of the browser, at the test's
		answers <- answer{line, err}
	}()
	select {
	case a := <-answers:
		var said struct {
			Tabs  []tab
			Error string
		}
		if err := json.Unmarshal(a.line, &said); a.err != nil || err != nil || said.Error != "" {
			b.t.Fatalf("the browser answers %q to %s (%v, %v)", a.line, what, a.err, err)
		}
		return said.Tabs
	case <-time.After(tabsPatience):
		b.t.Fatalf("the browser did not %s within %v", what, tabsPatience)
		return nil
	}
}

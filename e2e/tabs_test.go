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

// A tab is the view of a stream in one tab of browser/reader.html.
type tab struct {
	ID     string
	Shown  string // on the page
	Text   string
	IDs    []string // of events
	Names  []string // of events that are not deltas
	Opened int      // connections
	Error  *refusal // if the stream failed
	GaveUp bool     // EventSource does not reconnect any more
}

// tabsPatience bounds one command: dozens of tabs on a busy machine, with a stream in each.
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
		_ = in.Close() // ends the browser
		hung := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil {
			t.Errorf("the browser failed: %v", err)
		}
		hung.Stop()
	})
	return &tabs{t, in, bufio.NewReader(out)}
}

// do sends the browser a command, and returns the tabs if the command answers with them.
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
		line, err := b.out.ReadBytes('\n') // or the browser has ended with the test
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

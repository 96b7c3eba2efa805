package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pasted returns the command of the greeting that begins with name, including its continuation
// line.
func (p *process) pasted(t *testing.T, name string) string {
	t.Helper()
	p.greeting(t) // the last line
	_, command, ok := strings.Cut(p.Out.String(), "\n"+name+" ")
	if !ok {
		t.Fatalf("the greeting has no %s:\n%s", name, p.Out)
	}
	command, _, _ = strings.Cut(command, "\n\n")
	return name + " " + command
}

func TestGreetingHasCommandsThatWork(t *testing.T) {
	t.Parallel()
	curl := tool(t, "curl")
	w := run(t, allInOne, flags{})
	p := w.processes[apiService]
	if got := shell(t, filepath.Dir(curl), p.pasted(t, "curl")); !strings.HasPrefix(got, `data: {"id":"chatcmpl-`) || !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("curl prints %q", got)
	}
	if _, ok := grpcurl(t, w.chat, "list"); !ok { // builds grpcurl
		t.Fatal("grpcurl does not work")
	}
	got := messages(t, shell(t, binDir, p.pasted(t, "grpcurl")))
	if len(got) < 3 || got[len(got)-1]["end"] == nil {
		t.Errorf("grpcurl prints %v", got)
	}
}

// shell runs a command line as if it were pasted, with dir on the path.
func shell(t *testing.T, dir, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

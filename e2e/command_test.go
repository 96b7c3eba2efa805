package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/lab"
)

// commands are those that run services.
var commands = []string{"whence", "whence serve", gatewayCommand, "whence api", "whence chat", "whence worker", apiService, chatService, llmWorker}

// output runs a command that ends by itself, and returns its output and status.
func output(t *testing.T, name string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t, name), append(subcommand(name), args...)...)
	var out, logs strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &logs, lab.Environment()
	cmd.WaitDelay = 10 * time.Second // another process may have inherited the output
	_ = cmd.Run()                    // the status has the result
	return out.String(), logs.String(), cmd.ProcessState.ExitCode()
}

func TestCommandsExplainThemselves(t *testing.T) {
	t.Parallel()
	for _, name := range commands {
		if name == "whence" {
			continue // its help lists commands
		}
		out, logs, status := output(t, name, "--help")
		if status != 0 || logs != "" || !strings.Contains(out, "--listen host:port") || !strings.Contains(out, "WHENCE_LISTEN") {
			t.Errorf("%s --help ends with %d, prints %q and %q", name, status, out, logs)
		}
	}
}

func TestCommandsRefuseInvalidConfigurations(t *testing.T) {
	t.Parallel()
	taken := start(t, llmWorker, "--listen", "127.0.0.1:0", "--log-json").listening(t)
	for _, name := range commands {
		for _, test := range []struct {
			args []string
			want string
		}{
			{[]string{"--lissten", "127.0.0.1:0"}, "lissten"},
			{[]string{"127.0.0.1:0"}, "127.0.0.1:0"},
			{[]string{"--drain", "soon"}, "drain"},
			{[]string{"--config", "/does/not/exist.yaml"}, "exist.yaml"},
			{[]string{"--listen", "nowhere"}, "nowhere"},
			{[]string{"--listen", taken}, "address already in use"},
		} {
			out, logs, status := output(t, name, test.args...)
			if status != 2 || out != "" || !strings.Contains(logs, test.want) || !strings.HasPrefix(logs, name+": ") {
				t.Errorf("%s %v ends with %d, prints %q and %q", name, test.args, status, out, logs)
			}
		}
	}
}

// TestBusyPortsAreAllNamed: a second whence on the same machine opens no port, and one message names
// each that is busy.
func TestBusyPortsAreAllNamed(t *testing.T) {
	t.Parallel()
	taken := start(t, llmWorker, "--listen", "127.0.0.1:0", "--log-json").listening(t)
	out, logs, status := output(t, "whence serve", "--listen", taken, "--chat-listen", "127.0.0.1:0", "--worker-listen", taken)
	for _, want := range []string{"whence serve: --listen: ", "\n--worker-listen: ", "take any free ports: --listen 127.0.0.1:0 --worker-listen 127.0.0.1:0\n", "--worker-listen is \"" + taken} {
		if status != 2 || out != "" || !strings.Contains(logs, want) || strings.Contains(logs, "msg=listening") {
			t.Errorf("ends with %d, prints %q and %q, without %q", status, out, logs, want)
		}
	}
}

// TestCalleesNeedTheNamesOfTheirCallers: mutual TLS without the names of the callers is refused
// before a port is opened.
func TestCalleesNeedTheNamesOfTheirCallers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{chatService, llmWorker} {
		out, logs, status := output(t, name, "--listen", "nowhere", "--mtls-cert", "cert.pem", "--mtls-key", "key.pem", "--mtls-ca", "ca.pem")
		if status != 2 || out != "" || !strings.Contains(logs, "--mtls-cert needs --mtls-callers") {
			t.Errorf("%s ends with %d, prints %q and %q", name, status, out, logs)
		}
	}
}

func TestLogsAreTextUnlessJSONIsRequested(t *testing.T) {
	t.Parallel()
	p := start(t, llmWorker, "--listen", "127.0.0.1:0")
	p.await(t, p.Log, "where it listens", func(line string) bool {
		return strings.Contains(line, " level=INFO msg=listening addr=127.0.0.1:")
	})
	p.kill(t)
}

func TestSignalDuringTheStartEndsTheProcessWithStatusZero(t *testing.T) {
	t.Parallel()
	for _, name := range commands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				args := []string{"--listen", "127.0.0.1:0", "--log-json"}
				if name == "whence" || name == "whence serve" {
					args = append(args, "--chat-listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0")
				}
				p := start(t, name, args...)
				p.listening(t) // before the process serves
				p.terminate(t)
				p.exit(t)
			}
		})
	}
}

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

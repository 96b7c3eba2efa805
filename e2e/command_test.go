package e2e

import (
	"os/exec"
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

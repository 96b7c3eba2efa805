package command

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/internal/cli"
)

// executeKeys runs a command and returns its output and its status.
func executeKeys(t *testing.T, args ...string) (out, errs string, status int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = cli.Execute(t.Context(), Keys(), args, &stdout, &stderr)
	return stdout.String(), stderr.String(), status
}

func TestKeysAreManagedOnTheCommandLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	out, errs, status := executeKeys(t, "add", "--file", file, "--tenant", "search", "--id", "search-1", "--expires", "24h")
	key := strings.TrimSpace(out)
	if status != 0 || !strings.HasPrefix(key, "sk-") || strings.Contains(errs, key) {
		t.Fatal(out, errs, status)
	}
	if out, errs, status = executeKeys(t, "add", "--file", file, "--tenant", "batch"); status != 0 || !regexp.MustCompile(`^The new API key [0-9a-f]+ of the tenant batch\.`).MatchString(errs) || !strings.Contains(errs, "--keys "+file) {
		t.Fatal(out, errs)
	}
	ring, err := keys.Load(file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	if h, err := ring.Find(t.Context(), "Bearer "+key); err != nil || h.Entry.Tenant != "search" || h.Entry.ID != "search-1" {
		t.Error(h, err)
	}
	if out, errs, status = executeKeys(t, "list", "--file", file); status != 0 || !strings.Contains(out, "search-1") || !strings.Contains(out, "never") || strings.Count(out, "\n") != 3 {
		t.Error(out, errs)
	}
	if out, errs, status = executeKeys(t, "revoke", "--file", file, "search-1"); status != 0 || !strings.Contains(errs, "The key search-1 is removed") { // a flag before the argument
		t.Error(out, errs)
	}
	for want, wrong := range map[string][]string{
		"a command is missing":        {},
		`no command "rotate"`:         {"rotate"},
		"did you mean revoke":         {"revok", "x"},
		"name one key":                {"revoke", "--file", file},
		"search-1":                    {"revoke", "search-1", "--file", file},
		"--tenant is missing":         {"add", "--file", file},
		"--expires is -1h0m0s":        {"add", "--file", file, "--tenant", "x", "--expires", "-1h"},
		"no such file":                {"list", "--file", file + "x"},
		"did you mean --tenant":       {"add", "--tenent", "x"},
		"unexpected argument \"all\"": {"list", "all"},
	} {
		if out, errs, status := executeKeys(t, wrong...); status == 0 || !strings.Contains(errs, want) {
			t.Errorf("%q: status %d, %s%s", wrong, status, out, errs)
		}
	}
}

package cli_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/flags"
)

// A values is the configuration of the command under test.
type values struct {
	name   string
	count  int
	wait   time.Duration
	quick  bool
	key    string
	file   string
	listed list
}

// A list collects the values of a repeated flag.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func (v *values) flags(fs *flag.FlagSet) {
	fs.StringVar(&v.name, "who-listens", "default", "the `address`")
	fs.IntVar(&v.count, "count", 1, "how many")
	fs.DurationVar(&v.wait, "wait", time.Minute, "how long")
	fs.BoolVar(&v.quick, "quick", false, "do not wait")
	fs.StringVar(&v.key, "secret-key", "", "a `key`")
	fs.StringVar(&v.file, "keys", "", "a `file`")
	fs.Var(&v.listed, "origin", "repeated")
	flags.Group(fs, flags.Timeouts, "wait", "quick")
	flags.Secret(fs, "secret-key")
}

// execute runs a command that takes one argument.
func execute(t *testing.T, v *values, args ...string) (out, errs string, status int) {
	t.Helper()
	cmd := &cobra.Command{Use: "test", Short: "Test", Args: cobra.MaximumNArgs(1), RunE: func(*cobra.Command, []string) error { return nil }}
	cli.Attach(cmd, v.flags)
	var stdout, stderr bytes.Buffer
	status = cli.Execute(t.Context(), cmd, args, &stdout, &stderr)
	return stdout.String(), stderr.String(), status
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFlagsWinOverEnvironmentOverFileOverDefault(t *testing.T) {
	file := writeFile(t, "# a comment\nwho-listens: from-file\ncount: 5\norigin: [a, b]\nquick: true\n")
	for _, test := range []struct {
		args []string
		env  string
		want string
		n    int
	}{
		{nil, "", "default", 1},
		{[]string{"--config", file}, "", "from-file", 5},
		{[]string{"--config", file}, "from-env", "from-env", 5},
		{[]string{"argument", "--config=" + file, "--who-listens", "from-flag"}, "from-env", "from-flag", 5},
		{[]string{"--count=7", "argument", "--config", file}, "from-env", "from-env", 7},
	} {
		t.Setenv("WHENCE_WHO_LISTENS", test.env)
		var v values
		if _, errs, status := execute(t, &v, test.args...); status != 0 || v.name != test.want || v.count != test.n {
			t.Errorf("%v: %q, %d, %s", test, v.name, v.count, errs)
		}
		if len(test.args) > 0 && (v.listed.String() != "a,b" || !v.quick) {
			t.Errorf("%v: origins %v, quick %t", test, v.listed, v.quick)
		}
	}
}

// TestOnlyServicesReadTheirFileFromTheEnvironment: the other commands have other flags.
func TestOnlyServicesReadTheirFileFromTheEnvironment(t *testing.T) {
	t.Setenv("WHENCE_CONFIG", writeFile(t, "count: 5\nadmin: x\n"))
	var v values
	if out, errs, status := execute(t, &v); status != 0 || v.count != 1 {
		t.Errorf("a command: %d, %s%s", v.count, out, errs)
	}
	s := &cli.Service{Name: "test", Listen: "127.0.0.1:0", Flags: v.flags, Check: func() error { return errors.New("checked") }}
	cmd := &cobra.Command{Use: "test", Short: "Test"}
	s.Attach(cmd)
	var stdout, stderr bytes.Buffer
	if status := cli.Execute(t.Context(), cmd, nil, &stdout, &stderr); status != 2 || !strings.Contains(stderr.String(), `there is no flag "admin"`) {
		t.Errorf("a service: status %d, %s", status, &stderr)
	}
}

func TestFlagsWithoutEnvironmentAreNotSetFromTheEnvironment(t *testing.T) {
	t.Setenv("WHENCE_MODEL", "/models/llama")
	model := ""
	cmd := &cobra.Command{Use: "test", Short: "Test", RunE: func(*cobra.Command, []string) error { return nil }}
	cli.Attach(cmd, func(fs *flag.FlagSet) {
		fs.StringVar(&model, "model", "", "a `name`")
		flags.NoEnvironment(fs, "model")
	})
	var stdout, stderr bytes.Buffer
	if status := cli.Execute(t.Context(), cmd, []string{"--help"}, &stdout, &stderr); status != 0 || !strings.Contains(stdout.String(), "except for --config,") {
		t.Errorf("help: status %d, %s", status, &stdout)
	}
	if status := cli.Execute(t.Context(), cmd, []string{"--help=false"}, &stdout, &stderr); status != 0 || model != "" {
		t.Errorf("status %d, the model is %q", status, model)
	}
}

func TestErrorsCannotControlATerminal(t *testing.T) {
	cmd := &cobra.Command{Use: "test", Short: "Test", RunE: func(*cobra.Command, []string) error { return errors.New("a\x1b[2J\nb") }}
	cli.Attach(cmd, func(*flag.FlagSet) {})
	var stdout, stderr bytes.Buffer
	if status := cli.Execute(t.Context(), cmd, nil, &stdout, &stderr); status != 1 || stderr.String() != "test: a[2J\nb\n" {
		t.Errorf("status %d, %q", status, &stderr)
	}
}

// TestErrorsNameValueSourceAndExpectation covers all three sources.
func TestErrorsNameValueSourceAndExpectation(t *testing.T) {
	bad := writeFile(t, "who-listens: x\nwait: soon\ncuont: 3\ncount: 1\ncount: 2\n")
	for _, test := range []struct {
		name string
		args []string
		env  map[string]string
		want []string
	}{
		{"flag", []string{"--wait", "soon"}, nil, []string{`test: --wait is "soon"; it must be a duration such as 300ms, 30s or 1m30s`}},
		{"bool", []string{"--quick=maybe"}, nil, []string{`--quick is "maybe"; it must be true or false`}},
		{"range", []string{"--count", "99999999999999999999"}, nil, []string{"--count", "whole number", "out of range"}},
		{"environment", nil, map[string]string{"WHENCE_COUNT": "many", "WHENCE_WAIT": "soon"}, []string{
			`WHENCE_COUNT is "many" in the environment; it must be a whole number`, `WHENCE_WAIT is "soon" in the environment`,
		}},
		{"file", []string{"--config", bad}, nil, []string{
			bad + `:2: wait is "soon"; it must be a duration`, bad + `:3: there is no flag "cuont"; did you mean count?`, bad + ":5: count is set twice, first in line 4",
		}},
		{"no file", []string{"--config", "missing.yaml"}, nil, []string{"--config: open " + absolute(t, "missing.yaml")}},
		{"file in file", []string{"--config", writeFile(t, "config: other.yaml\n")}, nil, []string{":1: config is", "cannot name another file"}},
		{"nested", []string{"--config", writeFile(t, "count:\n  a: 1\n")}, nil, []string{":2: count must be a value or a list of values"}},
		{"list", []string{"--config", writeFile(t, "- a\n")}, nil, []string{":1: the file must be"}},
		{"no YAML", []string{"--config", writeFile(t, "a: [\n")}, nil, []string{"c.yaml: yaml: line"}},
		{"two documents", []string{"--config", writeFile(t, "count: 1\n---\ncount: 2\n")}, nil, []string{"more than one document"}},
		{"unknown", []string{"--who-listen", "x"}, nil, []string{"there is no flag --who-listen; did you mean --who-listens?"}},
		{"one dash", []string{"-count", "3"}, nil, []string{"there is no flag -count; did you mean --count?"}},
		{"no value", []string{"--count"}, nil, []string{"--count needs a value"}},
		{"secret", nil, map[string]string{"WHENCE_SECRET_KEY": "hunter2", "WHENCE_COUNT": "x"}, []string{"WHENCE_COUNT"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			out, errs, status := execute(t, &values{}, test.args...)
			if status != 2 || out != "" || strings.Contains(errs, "hunter2") {
				t.Errorf("status %d, %q", status, out)
			}
			for _, want := range test.want {
				if !strings.Contains(errs, want) {
					t.Errorf("%q lacks %q", errs, want)
				}
			}
		})
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return full
}

// TestChecksNameTheSources: a check knows only the names of flags; its error gets their values and sources.
func TestChecksNameTheSources(t *testing.T) {
	file := writeFile(t, "\nkeys: nowhere.yaml\n")
	t.Setenv("WHENCE_COUNT", "7")
	t.Setenv("WHENCE_SECRET_KEY", "hunter2")
	var v values
	s := &cli.Service{Name: "test", Listen: "127.0.0.1:0", Flags: v.flags, Check: func() error {
		return errors.New("--count, --wait, --keys and --secret-key do not fit to --listen and --nothing")
	}}
	cmd := &cobra.Command{Use: "test", Short: "Test"}
	s.Attach(cmd)
	var stdout, stderr bytes.Buffer
	if status := cli.Execute(t.Context(), cmd, []string{"--config", file, "--listen", "x"}, &stdout, &stderr); status != 2 {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{
		"--count is \"7\", as WHENCE_COUNT in the environment\n", "--wait is \"1m0s\", by default\n", "--listen is \"x\", on the command line\n",
		"--keys is \"" + absolute(t, "nowhere.yaml") + "\", in " + file + ":2\n", "--secret-key is a secret that is not shown, as WHENCE_SECRET_KEY",
	} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &stderr)
		}
	}
}

func TestHelpListsFlagsBySubject(t *testing.T) {
	out, errs, status := execute(t, &values{}, "--help")
	if status != 0 || errs != "" {
		t.Fatal(status, errs)
	}
	for _, want := range []string{"Flags:\n  --count int", "\nTimeouts:\n  --quick ", "--wait duration             how long (default 1m)\n", "WHENCE_LISTEN", "\nConfiguration:\n  --config file"} {
		if !strings.Contains(out, want) {
			t.Errorf("help lacks %q:\n%s", want, out)
		}
	}
	for line := range strings.Lines(out) {
		if len(line) > 101 {
			t.Errorf("a line is %d bytes wide: %s", len(line), line)
		}
	}
}

func TestMisspeltCommandsAreSuggested(t *testing.T) {
	root := &cobra.Command{Use: "root", Short: "Test"}
	work := &cobra.Command{Use: "work", Short: "Work", Args: cli.NoArguments, RunE: func(*cobra.Command, []string) error { return cli.Interrupted() }}
	cli.Attach(work, func(*flag.FlagSet) {})
	cli.Subcommands(root, work)
	for _, test := range []struct {
		args   []string
		want   string
		status int
	}{
		{[]string{"wok"}, `root: there is no command "wok"; did you mean work?`, 2},
		{[]string{"zzzzzz"}, "there is no command \"zzzzzz\"\n", 2},
		{nil, "a command is missing", 2},
		{[]string{"work", "hard"}, `root work: unexpected argument "hard"`, 2},
		{[]string{"work"}, "", 130},
	} {
		var stdout, stderr bytes.Buffer
		if status := cli.Execute(t.Context(), root, test.args, &stdout, &stderr); status != test.status || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%v: status %d, %s", test.args, status, &stderr)
		}
	}
}

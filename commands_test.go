package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/flags"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/flags.md")

// execute runs whence and returns its output and its status.
func execute(t *testing.T, args ...string) (out, errs string, status int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = cli.Execute(t.Context(), commands(), args, &stdout, &stderr)
	return stdout.String(), stderr.String(), status
}

func TestHelpFitsOneScreen(t *testing.T) {
	out, errs, status := execute(t, "--help")
	if n := strings.Count(out, "\n"); status != 0 || errs != "" || n < 24 || n > 40 {
		t.Errorf("status %d, %d lines, %s", status, n, errs)
	}
	for line := range strings.Lines(out) {
		if len(strings.TrimSuffix(line, "\n")) > 100 {
			t.Errorf("a line of %d columns: %s", len(line), line)
		}
	}
	for _, cmd := range commands().Commands() {
		if !strings.Contains(out, "\n  "+cmd.Name()+" ") {
			t.Errorf("the help lacks %s", cmd.Name())
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || len(cmd.Short) > 60 {
			t.Errorf("%s: %q is not a short description", cmd.Name(), cmd.Short)
		}
	}
}

func TestMisspeltCommandsAndFlagsAreSuggested(t *testing.T) {
	for want, args := range map[string][]string{
		"did you mean serve?":         {"sevre"},
		"did you mean why?":           {"wyh", "some-id"},
		"did you mean --listen?":      {"--lisen", ":0"},
		"did you mean --max-streams?": {"api", "--max-stream", "3"},
	} {
		if _, errs, status := execute(t, args...); status != 2 || !strings.Contains(errs, want) {
			t.Errorf("%v: status %d, %s", args, status, errs)
		}
	}
}

// each calls visit with all commands that have flags, and their flags.
func each(visit func(cmd *cobra.Command, all []*flag.Flag)) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		var all []*flag.Flag
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" {
				all = append(all, &flag.Flag{Name: f.Name, Usage: f.Usage, Value: f.Value, DefValue: f.DefValue})
			}
		})
		if len(all) > 0 {
			visit(cmd, all)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	for _, cmd := range commands().Commands() {
		walk(cmd)
	}
}

var serviceNames = []string{"whence serve", "whence gateway", "whence api", "whence chat", "whence worker"}

// keyFiles are the flags that name files of keys: the names are not secrets.
var keyFiles = []string{"tls-key", "mtls-key"}

func TestEveryFlagOfAServiceHasASubject(t *testing.T) {
	each(func(cmd *cobra.Command, all []*flag.Flag) {
		for _, f := range all {
			if slices.Contains(serviceNames, cmd.CommandPath()) && flags.SubjectOf(f) == flags.Other {
				t.Errorf("%s --%s has no subject: see package flags", cmd.CommandPath(), f.Name)
			}
			if strings.HasSuffix(f.Name, "-key") && !slices.Contains(keyFiles, f.Name) && !flags.IsSecret(f) {
				t.Errorf("%s --%s is not marked as a secret", cmd.CommandPath(), f.Name)
			}
		}
	})
}

const (
	reference = "docs/reference/flags.md"
	example   = "deploy/whence.yaml"
)

// TestReferenceOfFlagsIsComplete compares docs/reference/flags.md with the flags that the commands declare.
func TestReferenceOfFlagsIsComplete(t *testing.T) {
	want := referenceOfFlags()
	if *rewrite {
		if err := os.WriteFile(reference, []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the flags of the commands; go test . -run Reference -rewrite writes it", reference)
	}
}

func referenceOfFlags() string {
	var b strings.Builder
	b.WriteString(`# Flags

<!-- Generated from the code: go test . -run Reference -rewrite -->

Each flag is also an environment variable (` + "`--max-streams` is `WHENCE_MAX_STREAMS`" + `) and a key of the YAML file of
` + "`--config`" + `. Flags override the environment, which overrides the file. An unknown flag or key is an error. A value marked as
secret never appears in output.
`)
	known := map[string]string{} // flags of the services, by name and text, and their command
	each(func(cmd *cobra.Command, all []*flag.Flag) {
		if path := cmd.CommandPath(); slices.Contains(serviceNames[2:], path) {
			for _, f := range all {
				if key := f.Name + f.Usage + f.DefValue; known[key] == "" {
					known[key] = path
				}
			}
		}
	})
	each(func(cmd *cobra.Command, all []*flag.Flag) {
		path := cmd.CommandPath()
		if strings.HasPrefix(path, "whence completion") {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n", path, cmd.Short)
		if slices.Contains(serviceNames[:2], path) {
			all = writeShared(&b, all, known)
		}
		writeTables(&b, all)
	})
	return b.String()
}

// writeShared lists the flags that are those of one service, and returns the others.
func writeShared(b *strings.Builder, all []*flag.Flag, known map[string]string) (own []*flag.Flag) {
	shared := map[string][]string{}
	for _, f := range all {
		if of := known[f.Name+f.Usage+f.DefValue]; of != "" {
			shared[of] = append(shared[of], "`--"+f.Name+"`")
		} else {
			own = append(own, f)
		}
	}
	for _, of := range serviceNames[2:] {
		if len(shared[of]) > 0 {
			fmt.Fprintf(b, "\nAs for `%s`: %s.\n", of, strings.Join(shared[of], ", "))
		}
	}
	return own
}

func writeTables(b *strings.Builder, all []*flag.Flag) {
	escape := strings.NewReplacer("|", "\\|", "<", "&lt;", "*", "\\*")
	for _, subject := range flags.Subjects() {
		first := true
		for _, f := range all {
			if flags.SubjectOf(f) != subject {
				continue
			}
			if first {
				fmt.Fprintf(b, "\n| %s | default | |\n|---|---|---|\n", strings.ToLower(subject.String()))
				first = false
			}
			argument, usage := flags.Unquote(f)
			value := cli.Default(f)
			if value != "" {
				value = "`" + value + "`"
			}
			if flags.IsSecret(f) {
				usage += " (secret)"
			}
			if !flags.InEnvironment(f) {
				usage += " (not in the environment)"
			}
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", strings.TrimSpace("--"+f.Name+" "+argument), value, escape.Replace(usage))
		}
	}
}

var setting = regexp.MustCompile(`(?m)^#? ?([a-z][a-z-]*): (.*?)(?: +#.*)?$`)

// TestExampleOfAConfigurationLoads loads deploy/whence.yaml as it is, and each line that is commented out.
func TestExampleOfAConfigurationLoads(t *testing.T) {
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	all := setting.FindAllStringSubmatch(string(text), -1)
	if len(all) < 20 {
		t.Fatalf("%s has %d settings", example, len(all))
	}
	var whole strings.Builder
	for _, s := range all {
		fmt.Fprintf(&whole, "%s: %s\n", s[1], s[2])
	}
	for name, text := range map[string]string{"as it is": string(text), "with all settings": whole.String()} {
		file := t.TempDir() + "/whence.yaml"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		// The configuration is complete; only the address is one that cannot be listened on.
		_, errs, status := execute(t, "serve", "--config", file, "--listen", "nowhere")
		if status != 2 || !strings.Contains(errs, "address nowhere") || strings.Count(errs, "\n") != 2 {
			t.Errorf("%s: status %d, %s", name, status, errs)
		}
	}
}

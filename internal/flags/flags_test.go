package flags_test

import (
	"flag"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/flags"
)

func TestGroupsAndSecretsStayWithTheirFlags(t *testing.T) {
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	key := fs.String("api-key", "", "the `key` of the service")
	wait := fs.Duration("wait", time.Second, "how long to wait")
	quick := fs.Bool("quick", false, "do not wait")
	flags.Group(fs, flags.Access, "api-key")
	flags.Secret(fs, "api-key")
	flags.Group(fs, flags.Timeouts)
	for name, want := range map[string]flags.Subject{"api-key": flags.Access, "wait": flags.Timeouts, "quick": flags.Timeouts} {
		if got := flags.SubjectOf(fs.Lookup(name)); got != want {
			t.Errorf("--%s is listed under %v, want %v", name, got, want)
		}
	}
	if !flags.IsSecret(fs.Lookup("api-key")) || flags.IsSecret(fs.Lookup("wait")) {
		t.Error("exactly --api-key is secret")
	}
	if err := fs.Parse([]string{"--quick", "--wait", "3s", "--api-key=k"}); err != nil || *key != "k" || *wait != 3*time.Second || !*quick {
		t.Errorf("parsed %q, %v, %t, %v", *key, *wait, *quick, err)
	}
	if got := fs.Lookup("wait").Value.(flag.Getter).Get(); got != 3*time.Second {
		t.Errorf("Get returns %v", got)
	}
	for name, want := range map[string]string{"api-key": "key", "wait": "duration", "quick": ""} {
		if got, _ := flags.Unquote(fs.Lookup(name)); got != want {
			t.Errorf("the argument of --%s is %q, want %q", name, got, want)
		}
	}
}

func TestCopiesKeepTheSubject(t *testing.T) {
	from, to := flag.NewFlagSet("", flag.ContinueOnError), flag.NewFlagSet("", flag.ContinueOnError)
	from.Int("max", 3, "the maximum")
	flags.Group(from, flags.Limits)
	f := from.Lookup("max")
	flags.Copy(to, f, "chat-max", "chat-service's --max", f.Value)
	if c := to.Lookup("chat-max"); flags.SubjectOf(c) != flags.Limits || c.DefValue != "3" {
		t.Errorf("the copy is listed under %v, with default %q", flags.SubjectOf(c), c.DefValue)
	}
	if err := to.Parse([]string{"--chat-max", "5"}); err != nil || f.Value.String() != "5" {
		t.Errorf("the copy sets %v, %v", f.Value, err)
	}
}

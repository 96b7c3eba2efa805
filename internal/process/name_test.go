package process_test

import (
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/process"
)

func TestNamesThatPathsCannotHaveAreRefused(t *testing.T) {
	for name, good := range map[string]bool{
		"llm-worker/0": true, "chat service": true, "": false, "a > b": false, " a": false, "é": false, "a\nb": false, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false,
	} {
		fs := flag.NewFlagSet("hop", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		got := "unset"
		process.NameFlag(fs, &got, "hop/0")
		if got != "hop/0" || fs.Lookup("name").DefValue != "hop/0" {
			t.Errorf("the default is %q", got)
		}
		if err := fs.Parse([]string{"--name", name}); (err == nil) != good || good && got != name {
			t.Errorf("%q: %q, %v", name, got, err)
		}
		instances := flag.NewFlagSet("instance", flag.ContinueOnError)
		instances.SetOutput(io.Discard)
		process.InstanceFlag(instances, &got, "hop")
		if got != "" || instances.Lookup("name").DefValue != "" {
			t.Errorf("the default of an instance is %q", got)
		}
		if err := instances.Parse([]string{"--name", name}); (err == nil) != good || good && got != name {
			t.Errorf("an instance called %q: %q, %v", name, got, err)
		}
	}
}

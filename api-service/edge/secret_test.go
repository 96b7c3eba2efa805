package edge_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/flags"
)

// TestErrorsOfSecretFlagsQuoteNoSecret: whatever is wrong with the value of a secret flag, the error does not have the value.
func TestErrorsOfSecretFlagsQuoteNoSecret(t *testing.T) {
	const secret = "hunter2"
	refused := map[string]bool{}
	for _, value := range []string{
		"redis://:" + secret + "@host:port", "redis://:" + secret + "%zz@host", "redis://:" + secret + "#@host:1", secret + "://host", secret + ":x", secret,
		"redis://host/" + secret, "redis://host?password=" + secret, " " + secret, "redis://[" + secret,
	} {
		names := flag.NewFlagSet("", flag.ContinueOnError)
		(&edge.Config{}).Flags(names)
		names.VisitAll(func(f *flag.Flag) {
			if !flags.IsSecret(f) {
				return
			}
			var c edge.Config
			fs := flag.NewFlagSet("", flag.ContinueOnError)
			c.Flags(fs)
			err := fs.Set(f.Name, value)
			if err == nil {
				err = c.Validate()
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("--%s=%s: %v", f.Name, value, err)
			}
			refused[f.Name] = refused[f.Name] || err != nil
		})
	}
	if !refused["redis"] {
		t.Error("--redis takes any value")
	}
}

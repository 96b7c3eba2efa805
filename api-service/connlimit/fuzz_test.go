package connlimit_test

import (
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/connlimit"
)

// FuzzForwarded: only an address comes out of X-Forwarded-For, because terminals print it.
func FuzzForwarded(f *testing.F) {
	f.Add("10.0.0.1, 192.0.2.7")
	f.Add("[2001:db8::1]:443")
	f.Add("fe80::1%\x1b[31m")
	f.Fuzz(func(t *testing.T, line string) {
		got := connlimit.Forwarded([]string{"1.2.3.4", line})
		if !strings.HasSuffix(strings.TrimSpace(line), got) || strings.Trim(got, "0123456789abcdefABCDEF.:[]") != "" {
			t.Errorf("%q comes out of %q", got, line)
		}
	})
}

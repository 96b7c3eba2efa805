package streamtrace_test

import (
	"testing"

	"github.com/whence-dev/whence/pkg/streamtrace"
)

// TestStreamTraceTakesPrecedence: over the trace of the application. A malformed header is ignored.
func TestStreamTraceTakesPrecedence(t *testing.T) {
	const application, stream = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00"
	for name, test := range map[string]struct {
		headers map[string]string
		want    string
	}{
		"both":              {map[string]string{"traceparent": application, "whence-traceparent": stream}, stream},
		"the application's": {map[string]string{"traceparent": application}, application},
		"the stream's":      {map[string]string{"whence-traceparent": stream}, stream},
		"malformed":         {map[string]string{"traceparent": application, "whence-traceparent": "00-x"}, application},
		"none":              {nil, ""},
	} {
		got := ""
		streamtrace.ReadParent(func(key string) string { return test.headers[key] }).Each(func(_, value string) { got = value })
		if got != test.want {
			t.Errorf("%s: %s, not %s", name, got, test.want)
		}
	}
}

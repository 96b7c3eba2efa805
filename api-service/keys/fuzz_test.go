package keys

import (
	"log/slog"
	"testing"
)

// FuzzParse: a file of keys is either read or refused with an error, whatever its bytes.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"keys:\n  - {key: sk-one, tenant: one}\n",
		"keys:\n  - {key: sk-two, tenant: two, weight: 3, tier: priority, leave: \"linger:5s\"}\ntenants:\n  two: {requests_per_minute: 5}\n",
		"keys: []\n", "keys: [{}]\n", "a: &a [*a]\n", "- - -", "",
		"keys: []\nissuers:\n  - {issuer: \"https://id.example\", audience: [whence], tenant: one}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		ring, err := Parse(text, slog.New(slog.DiscardHandler))
		if (ring == nil) == (err == nil) {
			t.Errorf("Parse returned %v and %v", ring, err)
		}
		ring.Close()
	})
}

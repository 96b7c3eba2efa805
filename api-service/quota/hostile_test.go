package quota

import (
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/redistest"
)

// TestNoAnswerOfRedisEndsTheProcess: requests are admitted by the instance's own counts.
func TestNoAnswerOfRedisEndsTheProcess(t *testing.T) {
	t.Parallel()
	state := strings.Repeat(":1\r\n", 5)
	for name, answer := range map[string]string{
		"another account":      "*8\r\n:999\r\n:1\r\n:5\r\n" + state,
		"a negative account":   "*8\r\n:-1\r\n:1\r\n:5\r\n" + state,
		"another limit":        "*8\r\n:1\r\n:9\r\n:5\r\n" + state,
		"a time of years":      "*8\r\n:0\r\n:0\r\n:9223372036854775807\r\n" + state,
		"a negative use":       "*8\r\n:1\r\n:1\r\n:5\r\n" + strings.Repeat(":-9223372036854775808\r\n", 5),
		"too few numbers":      "*7\r\n:0\r\n:0\r\n:5\r\n" + strings.Repeat(":1\r\n", 4),
		"an array without end": "*999999999\r\n",
		"a text":               "$1\r\na\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, Config{Redis: "redis://" + redistest.Fake(t, func(command []string) string {
				if command[0] == "hello" {
					return redistest.Greeting
				}
				return answer
			})})
			all := account("a", Limits{Requests: 2})
			for range 2 {
				g, err := b.Admit(t.Context(), all)
				if err != nil {
					t.Fatal(err)
				}
				g.Headers(func(string, string) {})
				g.End(1)
			}
			if _, err := b.Admit(t.Context(), all); refusedFor(t, err) == "" {
				t.Error("a third request was admitted")
			}
		})
	}
}

// FuzzAnswer: whatever numbers the server answers with, a refusal names an account and a limit, and
// its client may try again within two minutes.
func FuzzAnswer(f *testing.F) {
	f.Add(int64(1), int64(1), int64(5), int64(1), int64(1))
	f.Add(int64(1), int64(2), int64(59_999), int64(1)<<62, int64(0))
	f.Fuzz(func(t *testing.T, refused, kind, at, now, before int64) {
		all := account("a", Limits{Requests: 2, Tokens: 5, Streams: 1})
		states, r, err := parse([]int64{refused, kind, at, now, before, now, before, now}, len(all))
		if err != nil {
			return
		}
		g := &Grant{accounts: all, states: states}
		g.Headers(func(string, string) {})
		if r.account >= 0 {
			if e := g.refusal(r); e.Message == "" || e.RetryAfter > 2*time.Minute {
				t.Errorf("%v, after %v", e, e.RetryAfter)
			}
		}
	})
}

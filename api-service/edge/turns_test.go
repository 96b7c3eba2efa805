package edge_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/wstest"
)

// An answer of answered has two tokens, and its prompt eight.
const answered = "start m/8 say x say y end 8"

// TestEveryTurnOfAConversationIsCheckedAndCharged checks that each turn counts as a request, and that
// its tokens count while the conversation is open.
func TestEveryTurnOfAConversationIsCheckedAndCharged(t *testing.T) {
	t.Parallel()
	keyed := keyFile(t, `
keys:
  - {key: tokens, tenant: a, tokens_per_minute: 25}
  - {key: requests, tenant: b, requests_per_minute: 2}
  - {key: streams, tenant: c, streams: 1}`)
	for key, c := range map[string]struct {
		turns int // that are answered
		why   string
	}{
		"tokens":   {3, "this API key may use 25 tokens per minute"},
		"requests": {2, "this API key may make 2 requests per minute"},
		"streams":  {5, ""},
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			url, _ := start(t, keyed)
			client := converse(t, url, answered, bearer(key)...)
			for turn := range c.turns {
				if turn > 0 {
					say(t, client, turnWith(answered))
				}
				client.Until("turn_end")
				if key == "tokens" && turn == 0 {
					left := 25
					polltest.Eventually(t, "the first turn is charged while the conversation is open", func() bool {
						left = remainingTokens(t, url, key)
						return left != 25
					})
					if left != 15 {
						t.Errorf("%d tokens are left while the conversation is open, want 15", left)
					}
				}
			}
			if c.why == "" {
				client.Say("{}")
				wantEnd(t, client.End(), "completed", "engine > chat-service > api-service", 1000)
				return
			}
			say(t, client, turnWith(answered))
			e := client.End()
			wantEnd(t, e, "overloaded", "api-service", 1013)
			if !strings.Contains(e.Last(), c.why) {
				t.Errorf("the ending is %s, want %q", e.Last(), c.why)
			}
		})
	}
}

// TestAConversationEndsWithItsKey: after a key was revoked, the open answer may finish, and the
// conversation ends whether or not its client sends another turn.
func TestAConversationEndsWithItsKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		end    func(client *wstest.Client, release func())
	}{
		"between turns": {answered, func(client *wstest.Client, _ func()) { client.Until("turn_end") }},
		"with a turn": {answered, func(client *wstest.Client, _ func()) {
			client.Until("turn_end")
			say(t, client, turnWith("wait 1m"))
		}},
		"in an answer": {"start m say x hold x say y end x", func(client *wstest.Client, release func()) {
			client.Until("delta")
			release()
			client.Until("turn_end")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keys.yaml")
			write := func(key string) {
				if err := os.WriteFile(path, fmt.Appendf(nil, "keys: [{key: %s, tenant: a}]", key), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("mine")
			url, chat := start(t, func(c *edge.Config) { c.Keys = path })
			client := converse(t, url, c.script, bearer("mine")...)
			if c.script != answered {
				client.Until("started")
			}
			write("other")
			polltest.Eventually(t, "the edge has read the file", func() bool {
				resp := ask(t, "GET", url+"/v1/models", "", bearer("mine")...)
				whole(t, resp)
				return resp.StatusCode == http.StatusUnauthorized
			})
			c.end(client, func() { close(chat.release) })
			wantEnd(t, client.End(), "unauthenticated", "api-service", 4014)
		})
	}
}

// TestAConversationEndsAtItsLimit: an answer that is running at the end of --socket-lifetime
// finishes.
func TestAConversationEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	url, chat := start(t, func(c *edge.Config) { c.SocketLifetime = time.Second })
	answering := converse(t, url, "start m say x hold x say y end x")
	answering.Until("delta")
	all := map[string]*wstest.Client{"in an answer": answering}
	for name, script := range map[string]string{"between turns": answered, "before the first turn": ""} {
		client, refused := wstest.Dial(t, url+"/v1/converse")
		if all[name] = client; client == nil {
			t.Fatal(refused)
		}
		if script != "" {
			say(t, client, chatOf(script))
			client.Until("turn_end")
		}
	}
	for _, name := range []string{"between turns", "before the first turn", "in an answer"} { // the last one begun ends before the answer does
		if name == "in an answer" {
			close(chat.release)
			answering.Until("turn_end")
		}
		e := all[name].End()
		wantEnd(t, e, "deadline", "api-service", 4006)
		if !strings.Contains(e.Last(), "websocket_connection_limit_reached") {
			t.Errorf("%s: %s", name, e.Last())
		}
	}
}

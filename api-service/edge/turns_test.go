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
	"github.com/whence-dev/whence/internal/wstest"
)

// An answer of answered has two tokens, and its prompt eight.
const answered = "start m/8 say x say y end 8"

// TestEveryTurnOfAConversationIsCheckedAndCharged checks that each turn counts as a request, and that
// its tokens count while the conversation is open.
func TestEveryTurnOfAConversationIsCheckedAndCharged(t *testing.T) {
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
					for begun := time.Now(); left == 25 && time.Since(begun) < 20*time.Second; {
						left = remainingTokens(t, url, key)
					}
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
			for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(5 * time.Millisecond) { // until the edge has read the file
				resp := ask(t, "GET", url+"/v1/models", "", bearer("mine")...)
				if whole(t, resp); resp.StatusCode == http.StatusUnauthorized {
					break
				}
			}
			c.end(client, func() { close(chat.release) })
			wantEnd(t, client.End(), "unauthenticated", "api-service", 4014)
		})
	}
}

// TestAConversationEndsAtItsLimit: an answer that is running at the end of --socket-lifetime
// finishes.
func TestAConversationEndsAtItsLimit(t *testing.T) {
	const lifetime = 300 * time.Millisecond
	for name, script := range map[string]string{"between turns": answered, "in an answer": "start m say x hold x say y end x", "before the first turn": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, chat := start(t, func(c *edge.Config) { c.SocketLifetime = lifetime })
			client := converse(t, url, script)
			if strings.Contains(script, "hold") {
				client.Until("delta")
				time.AfterFunc(2*lifetime, func() { close(chat.release) })
			}
			if script != "" {
				client.Until("turn_end")
			}
			e := client.End()
			wantEnd(t, e, "deadline", "api-service", 4006)
			if !strings.Contains(e.Last(), "websocket_connection_limit_reached") {
				t.Error(e.Last())
			}
		})
	}
}

package edge_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/wstest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/usage"
)

// records is a sink of usage records.
type records struct {
	mu  sync.Mutex
	got []usage.Record
}

func (*records) Name() string                { return "file" }
func (*records) Close(context.Context) error { return nil }
func (s *records) Write(_ context.Context, all []usage.Record) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, all...)
	return len(all), nil
}

// TestEveryTurnIsChargedHoweverAConversationEnds checks that the quota, the usage record and the
// stories of both hops count the prompts of all turns.
func TestEveryTurnIsChargedHoweverAConversationEnds(t *testing.T) {
	const turns, limit = 12, 1_000_000
	leave := func(c *wstest.Client) { c.RawEnd(nil) }
	stop := func(c *wstest.Client) { c.Say(`{"stop":{}}`) }
	malformed := func(c *wstest.Client) { c.Say("hello") }
	for name, c := range map[string]struct {
		last   string // rest of the script of a turn that is open at the end; "" for none
		end    func(c *wstest.Client)
		reason string
	}{
		"completed":                    {"", func(c *wstest.Client) { c.Say("{}") }, "completed"},
		"TCP close":                    {"", leave, "client_gone"},
		"TCP reset":                    {"", (*wstest.Client).Reset, "client_gone"},
		"stop":                         {"", stop, "user_stop"},
		"malformed message":            {"", malformed, "invalid"},
		"TCP close in an answer":       {"wait 1m", leave, "client_gone"},
		"stop in an answer":            {"wait 1m", stop, "user_stop"},
		"malformed message, in answer": {"wait 1m", malformed, "invalid"},
		"failure of an answer":         {"fail peer_lost", nil, "peer_lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var written records
			log := usage.NewLog(slog.New(slog.DiscardHandler), func(string, bool, int) {}, &written)
			keyed := keyFile(t, "keys: [{key: k, tenant: a, tokens_per_minute: 1000000}]")
			var logs logtest.Log
			var chat *scriptedChat
			want, charged := uint32(0), 0
			t.Run("edge", func(t *testing.T) { // the edge drains at the end of this subtest
				var url string
				url, chat = startLogging(t, &logs, func(c *edge.Config) { keyed(c); c.Usage = log })
				client := converse(t, url, "", bearer("k")...)
				for i := range turns {
					prompt := 10 * (i + 1)
					want += uint32(prompt)
					script := fmt.Sprintf("start m/%d say x end %d/4", prompt-1, prompt) // the engine counts one token more than the admission
					if i == 0 {
						say(t, client, chatOf(script))
					} else {
						say(t, client, turnWith(script))
					}
					client.Until("turn_end")
				}
				if c.last != "" {
					say(t, client, turnWith("start m/1000 say x "+c.last))
					client.Until("delta")
					want += 1000
				}
				if c.end != nil {
					c.end(client)
				}
				logs.Await(t, "stream ended", "hop=api-service", "reason="+c.reason)
				polltest.Eventually(t, "the quota is charged", func() bool {
					charged = limit - remainingTokens(t, url, "k")
					return charged != 0
				})
			})
			if err := log.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			said := turns
			if c.last != "" {
				said++
			}
			if charged != int(want)+said {
				t.Errorf("the quota was charged %d tokens, want %d of prompts and %d of answers", charged, want, said)
			}
			var talks []usage.Record
			for _, r := range written.got {
				if r.Surface == "converse" {
					talks = append(talks, r)
				}
			}
			if len(talks) != 1 || talks[0].Prompt != want || talks[0].Cached == nil || *talks[0].Cached != 4*turns || talks[0].Reason != c.reason {
				t.Fatalf("the usage records of the conversation are %+v, want %d prompt tokens", talks, want)
			}
			below, _ := chat.hop.Observer.(*ledger.Ledger)
			if p := below.Get(talks[0].ID); p.GetPromptTokens() != want || p.GetCachedTokens() != 4*turns {
				t.Errorf("the story of chat-service is %v, want %d prompt tokens", p, want)
			}
		})
	}
}

// TestPromptIsChargedIfItsClientLeavesBeforeTheEngineAnswers checks that the quota and the usage
// record count a prompt once that a worker was reading when the client left.
func TestPromptIsChargedIfItsClientLeavesBeforeTheEngineAnswers(t *testing.T) {
	const limit = 1_000_000
	for name, c := range map[string]struct {
		path, body string
		want       int
	}{
		"stream":                    {"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"read 900 wait 1m"}]}`, 900},
		"answer at once":            {"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"read 900 wait 1m"}]}`, 900},
		"two prompts":               {"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"read 900 read 90 wait 1m"}]}`, 990},
		"embeddings":                {"/v1/embeddings", `{"model":"m","input":"read 900"}`, 900},
		"stream without a worker":   {"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"wait 1m"}]}`, 0},
		"embeddings without worker": {"/v1/embeddings", `{"model":"m","input":"wait"}`, 0},
	} {
		for _, linked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, link %t", name, linked), func(t *testing.T) {
				t.Parallel()
				var written records
				log := usage.NewLog(slog.New(slog.DiscardHandler), func(string, bool, int) {}, &written)
				keyed := keyFile(t, "keys: [{key: k, tenant: a, tokens_per_minute: 1000000}]")
				charged := 0
				t.Run("edge", func(t *testing.T) { // the edge drains at the end of this subtest
					var logs logtest.Log
					url, chat := startLogging(t, &logs, func(c *edge.Config) { keyed(c); c.Usage, c.Link = log, linked })
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+c.path, strings.NewReader(c.body))
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Content-Type", "application/json")
					req.Header.Set("Authorization", "Bearer k")
					over := make(chan struct{})
					go func() {
						defer close(over)
						if resp, err := http.DefaultClient.Do(req); err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
						}
					}()
					for range 1 + strings.Count(c.body, "read") {
						polltest.Receive(t, "the beginning of a stream", chat.begun)
					}
					leave()
					<-over
					logs.Await(t, "stream ended", "hop=api-service", "reason=client_gone")
					polltest.Eventually(t, "the quota is charged", func() bool {
						charged = limit - remainingTokens(t, url, "k")
						return charged >= c.want
					})
				})
				if err := log.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				left := slices.DeleteFunc(written.got, func(r usage.Record) bool { return r.Reason != "client_gone" })
				if charged != c.want || len(left) != 1 || int(left[0].Prompt) != c.want || left[0].Generated != 0 {
					t.Errorf("the quota was charged %d tokens, and the usage records are %+v; want %d", charged, left, c.want)
				}
			})
		}
	}
}

// remainingTokens returns the rest of a key's limit of tokens.
func remainingTokens(t *testing.T, url, key string) int {
	t.Helper()
	resp := ask(t, "POST", url+"/tokenize", `{"prompt":"x"}`, bearer(key)...)
	whole(t, resp)
	n, err := strconv.Atoi(resp.Header.Get("x-ratelimit-remaining-tokens"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

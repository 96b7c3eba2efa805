package e2e

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"

	chatfleet "github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvcache"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
)

// TestIndexSeesTheEmbeddedCache fills the KV cache of an embedded engine in another process, and
// waits until chat-service's index has each change. The index gets no forecast.
func TestIndexSeesTheEmbeddedCache(t *testing.T) {
	t.Parallel()
	addr := service(t, llmWorker, "127.0.0.1:0", []string{"--kv-tokens", "384"}).listening(t)
	tracker := kvcache.New(kvcache.Options{})
	workers := chatfleet.New(chatfleet.Options{
		Self: "chat-service", Check: func(*llmv1.WorkerInfo) error { return nil }, Follow: tracker.Follow, Log: slog.New(slog.DiscardHandler),
	})
	if err := workers.Set(addr); err != nil {
		t.Fatal(err)
	}
	defer workers.Set() // closes the connections
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { workers.Watch(ctx, func(bool) {}) })
	defer watching.Wait()
	defer cancel()
	w := workers.Members()[0]
	polltest.Eventually(t, "the worker is healthy", func() bool { return w.Info() != nil })
	client := workerv1.NewWorkerClient(dialGRPC(t, addr))
	// prompt returns 200 tokens, three blocks and a part.
	prompt := func(first uint32) *workerv1.TokenRequest {
		return &workerv1.TokenRequest{
			Prompt: append([]uint32{first}, slices.Repeat([]uint32{400}, 199)...), Sampling: &llmv1.Sampling{MaxTokens: new(uint32(1))},
		}
	}
	run := func(req *workerv1.TokenRequest) {
		t.Helper()
		for _, err := range rpc.Dial("caller", workerName(0), client.Generate, methods.Worker)(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	cached := func(req *workerv1.TokenRequest) int { return tracker.Lookup(req).Cached(w, w.Info()) }
	if n := cached(prompt(1)); n != 0 {
		t.Errorf("%d tokens of an empty cache", n)
	}
	run(prompt(1))
	polltest.Eventually(t, "the index has the first prompt", func() bool { return cached(prompt(1)) == 192 })
	run(prompt(2)) // with the first, more than six blocks
	polltest.Eventually(t, "the index has the second prompt", func() bool { return cached(prompt(2)) == 192 })
	run(prompt(3))
	polltest.Eventually(t, "the index has the third prompt instead of the first", func() bool { return cached(prompt(3)) == 192 && cached(prompt(1)) < 192 })
}

// TestConversationsAreRoutedToTheirCache runs conversations on fleets of worker processes and
// checks their cache hits.
func TestConversationsAreRoutedToTheirCache(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine string
		flags  []string
		block  int // tokens
	}{{"embedded", nil, 64}, {"sim", []string{"--sim-speed", "10"}, 16}} {
		t.Run(c.engine, func(t *testing.T) {
			t.Parallel()
			converseWithFleet(t, append(c.flags, "--engine", c.engine), c.block)
		})
	}
}

func converseWithFleet(t *testing.T, engine []string, block int) {
	w := runFleet(t, 3, flags{worker: engine, chat: []string{"--policy", "kv"}})
	// say sends the whole conversation, and returns the answer and the number of cached tokens of
	// the prompt.
	say := func(messages ...any) (answer string, prompt, cached int) {
		t.Helper()
		r := w.post(t, ask{"model": model, "temperature": 0, "max_tokens": 20, "messages": messages})
		var body struct {
			Choices []struct{ Message struct{ Content string } }
			Usage   struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal(r.body, &body); err != nil || len(body.Choices) != 1 {
			t.Fatalf("status %d with %q: %v", r.status, r.body, err)
		}
		return body.Choices[0].Message.Content, body.Usage.Prompt, body.Usage.Details.Cached
	}
	turn := func(role, content string) any { return map[string]any{"role": role, "content": content} }
	for _, topic := range []string{"harbors", "foxes", "bridges", "lamps"} {
		said, before := []any{}, 0
		for _, question := range []string{"Tell me all that you know about " + topic + ", and do not leave out what others say of " + topic + " in the north, in the south, in the east, and in the west, by day, by night, in summer, and in winter.", "And then?", "Why?", "Is that so?"} {
			said = append(said, turn("user", question))
			answer, prompt, cached := say(said...)
			// The same worker has read the last prompt, except for its end.
			if least := before - block - 16; cached < least || cached > prompt {
				t.Errorf("%s: %d of %d tokens were cached, but %d had been read", question, cached, prompt, before)
			}
			said, before = append(said, turn("assistant", answer)), prompt
		}
	}
}

package e2e

import (
	"encoding/json"
	"testing"
)

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

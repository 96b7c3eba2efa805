package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
)

// A mix says which services on the way of a stream are of the last release.
type mix struct{ edge, chat, worker bool }

// mixes are all of them. api-service/1 and llm-worker/1, to which streams are handed over or from which
// they move, are of the other release than api-service/0 and llm-worker/0: a mix of one release has
// two releases as well.
var mixes = []mix{
	{false, false, false}, {false, false, true}, {false, true, false}, {false, true, true},
	{true, false, false}, {true, false, true}, {true, true, false}, {true, true, true},
}

func (m mix) String() string {
	release := map[bool]string{true: "earlier", false: "new"}
	return fmt.Sprintf("%s api-service, %s chat-service, %s llm-worker", release[m.edge], release[m.chat], release[m.worker])
}

// hops returns the hops of a scene that are of the last release.
func (m mix) hops() (earlier []string) {
	for hop, is := range map[string]bool{api0: m.edge, api1: !m.edge, chatService: m.chat, work: m.worker, lost: !m.worker} {
		if is {
			earlier = append(earlier, hop)
		}
	}
	return earlier
}

// eachMix runs a test once for each mix, in parallel.
func eachMix(t *testing.T, mixes []mix, test func(*testing.T, mix)) {
	t.Helper()
	tier.Full(t)
	t.Parallel()
	earlierBinary(t)
	for _, m := range mixes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			test(t, m)
		})
	}
}

// TestReleasesAgreeOnEndings plays faults with services of two releases. What holds in one release must
// hold between both: a stop reaches the engine, each hop reports the same ending, and streams move.
func TestReleasesAgreeOnEndings(t *testing.T) {
	some := []string{
		"client closes its connection", "client closes a request for a whole answer", "client closes before the first token",
		"client stops its conversation over a WebSocket", "DELETE of the stream", "DELETE at the other replica", "abort_request at the other replica",
		"client reads a byte at a time", "deadline of the request",
		"api-service panics", "api-service is killed", "api-service drains", "api-service gets a second signal",
		"chat-service panics", "chat-service is killed", "chat-service drains", "chat-service's handler cancels with a cause",
		"llm-worker is killed, another one continues", "llm-worker drains, another one continues", "llm-worker is killed", "llm-worker hangs", "llm-worker drains",
		"engine fails", "engine panics", "gRPC caller cancels", "llm-worker is full", "model does not exist",
	}
	eachMix(t, mixes, func(t *testing.T, m mix) { playFaults(t, false, ofReleases(t, m, some)) })
}

// TestReleasesAgreeOnEndingsOverGRPC is TestReleasesAgreeOnEndings for streams without links.
func TestReleasesAgreeOnEndingsOverGRPC(t *testing.T) {
	some := []string{
		"client closes its connection", "DELETE at the other replica", "deadline of the request", "api-service is killed", "chat-service drains",
		"llm-worker is killed, another one continues", "llm-worker is killed", "engine fails",
	}
	eachMix(t, mixes, func(t *testing.T, m mix) { playFaults(t, false, ofReleases(t, m, some), overGRPC) })
}

// ofReleases returns the rows with some names, with the services of a mix.
func ofReleases(t *testing.T, m mix, some []string) (all []row) {
	t.Helper()
	for _, r := range rows {
		if slices.Contains(some, r.name) {
			r.flags.earlier = m.hops()
			all = append(all, r)
		}
	}
	if len(all) != len(some) {
		t.Fatalf("there are %d rows for %d names", len(all), len(some))
	}
	return all
}

// A question is a request whose answer does not depend on the release.
type question struct {
	path string
	body ask
}

// questions returns questions of all kinds.
func questions() map[string]question {
	const chats = "/v1/chat/completions"
	weather := map[string]any{"type": "function", "function": map[string]any{"name": "get_weather", "parameters": map[string]any{
		"type": "object", "required": []string{"unit"}, "additionalProperties": false, "properties": map[string]any{"unit": map[string]any{"enum": []string{"C", "F"}}},
	}}}
	report := map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "r", "schema": map[string]any{
		"type": "object", "required": []string{"sky"}, "additionalProperties": false, "properties": map[string]any{"sky": map[string]any{"enum": []string{"clear", "rain"}}},
	}}}
	return map[string]question{
		"tokens":     {chats, greedy(short, "logprobs", true, "top_logprobs", 2)},
		"draws":      {chats, greedy(short, "temperature", 0.8, "seed", 7, "n", 2, "max_tokens", 30)},
		"stop":       {chats, greedy(long, "stop", []string{" the"}, "max_tokens", 60)},
		"call":       {chats, greedy("What is the weather in Paris?", "tools", []any{weather}, "tool_choice", "required")},
		"schema":     {chats, greedy("What is the weather?", "response_format", report, "max_tokens", 60)},
		"text":       {"/v1/completions", texted([]string{"Once upon a time", "The fox"}, "echo", true)},
		"response":   {"/v1/responses", ask{"model": model, "temperature": 0, "store": false, "input": short}},
		"message":    {"/v1/messages", ask{"model": model, "temperature": 0, "max_tokens": 60, "messages": greedy(short)["messages"]}},
		"generate":   {"/generate", ask{"text": "Once upon a time", "sampling_params": map[string]any{"temperature": 0, "max_new_tokens": 20}}},
		"embeddings": {"/v1/embeddings", embedding([]string{"The fox sleeps.", "A harbor"})},
		"count":      {"/tokenize", ask{"model": model, "messages": greedy(short)["messages"]}},
	}
}

// TestReleasesAnswerAlike: the answers through services of two releases are those of this release, token
// for token.
func TestReleasesAnswerAlike(t *testing.T) {
	eachMix(t, mixes[1:], func(t *testing.T, m mix) {
		ours, mixed := stage(t, "", t.TempDir(), flags{}), stage(t, "", t.TempDir(), flags{earlier: m.hops()})
		for name, q := range questions() {
			want, got := ours.postTo(t, q.path, q.body), mixed.postTo(t, q.path, q.body)
			if want.status != http.StatusOK || got.status != http.StatusOK {
				t.Errorf("%s: status %d: %s\nand %d: %s", name, want.status, want.body, got.status, got.body)
				continue
			}
			if a, b := essence(t, want.body), essence(t, got.body); len(a) == 0 || !slices.Equal(a, b) {
				t.Errorf("%s: want\n%s\ngot\n%s", name, strings.Join(a, "\n"), strings.Join(b, "\n"))
			}
		}
		for _, overWhat := range []string{short, long} {
			want, got := ours.streamedTokens(t, overWhat), mixed.streamedTokens(t, overWhat)
			if len(want) == 0 || !slices.Equal(want, got) {
				t.Errorf("streamed: want %q, got %q", want, got)
			}
		}
		mixed.idle(t)
	})
}

// streamedTokens returns the tokens of a streamed answer, and how it ends.
func (w *whence) streamedTokens(t *testing.T, prompt string) (tokens []string) {
	t.Helper()
	l := w.open(t, greedy(prompt, "logprobs", true, "stream_options", map[string]any{"include_usage": true}))
	for {
		e, err := l.events.Next()
		if errors.Is(err, io.EOF) {
			return tokens
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Comment != "" || e.Data == lab.Done {
			continue
		}
		var c struct {
			Choices []struct {
				Logprobs *struct {
					Content []struct{ Token string }
				}
				Finish *string `json:"finish_reason"`
			}
			Usage *usage
		}
		if err := json.Unmarshal([]byte(e.Data), &c); err != nil {
			t.Fatal(err, e.Data)
		}
		for _, choice := range c.Choices {
			if choice.Logprobs != nil {
				for _, token := range choice.Logprobs.Content {
					tokens = append(tokens, token.Token)
				}
			}
			if choice.Finish != nil {
				tokens = append(tokens, *choice.Finish)
			}
		}
		if c.Usage != nil {
			tokens = append(tokens, fmt.Sprint(*c.Usage))
		}
	}
}

// essentials are the members of answers that do not depend on the release. Ids and times do, and
// log-probabilities and vectors are numbers whose last digits may.
var essentials = []string{
	"content", "text", "arguments", "name", "token", "finish_reason", "stop_reason", "prompt_tokens", "completion_tokens", "total_tokens",
	"input_tokens", "output_tokens", "count", "tokens", "index",
}

// essence returns the essential members of an answer in a fixed order, with their values. A value that
// is null or empty may as well be missing.
func essence(t *testing.T, body []byte) (all []string) {
	t.Helper()
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		t.Fatal(err)
	}
	var add func(name string, value any)
	add = func(name string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for _, member := range slices.Sorted(maps.Keys(v)) {
				add(member, v[member])
			}
		case []any:
			for _, one := range v {
				add(name, one)
			}
		default:
			if v != nil && v != "" && slices.Contains(essentials, name) {
				all = append(all, fmt.Sprint(name, " ", v))
			}
		}
	}
	add("", value)
	return all
}

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/whence-dev/whence/lab"
)

// stream requests a stream and returns all of its bytes.
func (w *whence) stream(t *testing.T, a ask, id string) reply {
	t.Helper()
	a["stream"] = true
	resp, err := w.send(t, a, id)
	if err != nil {
		t.Fatal(err)
	}
	r := readAll(t, resp)
	if r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	return r
}

// events returns the data of a stream's events, which have nothing else.
func events(t *testing.T, body []byte) (all []string) {
	t.Helper()
	for e := lab.NewEvents(bytes.NewReader(body)); ; {
		one, err := e.Next()
		switch {
		case errors.Is(err, io.EOF) && len(all) > 0:
			return all
		case err != nil, one.Comment != "", one.ID != "", one.Name != "":
			t.Fatalf("after %d events: %+v, %v", len(all), one, err)
		}
		all = append(all, one.Data)
	}
}

func TestChunksHaveTheOrderThatSDKsExpect(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		for _, withUsage := range []bool{false, true} {
			a := greedy(short)
			if withUsage {
				a["stream_options"] = map[string]any{"include_usage": true}
			}
			got := events(t, w.stream(t, a, "").body)
			if last := got[len(got)-1]; last != "[DONE]" {
				t.Fatalf("the last event is %q", last)
			}
			var chunks []map[string]any
			for _, data := range got[:len(got)-1] {
				var c map[string]any
				if err := json.Unmarshal([]byte(data), &c); err != nil {
					t.Fatalf("%q: %v", data, err)
				}
				chunks = append(chunks, c)
			}
			if withUsage {
				last := chunks[len(chunks)-1]
				chunks = chunks[:len(chunks)-1]
				if choices, ok := last["choices"].([]any); !ok || len(choices) != 0 {
					t.Errorf("the usage chunk has the choices %v", last["choices"])
				}
				if u, ok := last["usage"].(map[string]any); !ok || u["prompt_tokens"] == nil || u["completion_tokens"] == nil || u["total_tokens"] == nil {
					t.Errorf("usage is %v", last["usage"])
				}
			}
			for i, c := range chunks {
				if u, has := c["usage"]; has != withUsage || u != nil {
					t.Errorf("chunk %d: usage %v, present %t; want null if usage was requested, otherwise no such field", i, u, has)
				}
				wantDelta(t, i, len(chunks), c)
			}
		}
	})
}

// wantDelta checks that chunk i of n is the role, a piece of text, or the finish.
func wantDelta(t *testing.T, i, n int, c map[string]any) {
	t.Helper()
	choices, _ := c["choices"].([]any)
	if len(choices) != 1 {
		t.Fatalf("chunk %d has %d choices", i, len(choices))
	}
	choice, _ := choices[0].(map[string]any)
	delta, _ := choice["delta"].(map[string]any)
	switch i {
	case 0:
		if delta["role"] != "assistant" || delta["content"] != "" || choice["finish_reason"] != nil {
			t.Errorf("the first chunk is %v", choice)
		}
	case n - 1:
		if len(delta) != 0 || choice["finish_reason"] != "stop" {
			t.Errorf("the last chunk is %v", choice)
		}
	default:
		if text, _ := delta["content"].(string); text == "" || len(delta) != 1 || choice["finish_reason"] != nil {
			t.Errorf("chunk %d is %v", i, choice)
		}
	}
}

func TestAStreamHasOneIDAndOneTime(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		r := w.stream(t, greedy(short), "my-own.id:7")
		heads := map[string]bool{}
		head := regexp.MustCompile(`^\{"id":"chatcmpl-my-own\.id:7","object":"chat\.completion\.chunk","created":\d+,"model":"whence-tiny",`)
		for _, data := range events(t, r.body) {
			if data != "[DONE]" {
				heads[head.FindString(data)] = true
			}
		}
		if len(heads) != 1 || heads[""] {
			t.Errorf("chunks begin with %v", heads)
		}
	})
}

func TestHeadersKeepProxiesFromBuffering(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		r := w.stream(t, greedy(short), "")
		if got := r.header.Get("Content-Type"); got != "text/event-stream" && got != "text/event-stream; charset=utf-8" {
			t.Errorf("Content-Type: %s", got)
		}
		for name, want := range map[string]string{"Cache-Control": "no-cache", "X-Accel-Buffering": "no", "Content-Length": ""} {
			if got := r.header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		whole := w.post(t, greedy(short))
		if got := whole.header.Get("Content-Type"); got != "application/json" {
			t.Errorf("an unstreamed answer has Content-Type: %s", got)
		}
	})
}

func TestRequestIDsAreEchoedOrGenerated(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		minted := regexp.MustCompile(`^str-[a-z0-9]{26}$`)
		seen := map[string]bool{}
		for _, last := range []string{"1", "2"} { // last character of the id; also decides whether the answer is streamed
			for given, echoed := range map[string]bool{
				"": false, "mine-" + last: true, "A-Z_a.z:09-" + last: true, strings.Repeat("x", 127) + last: true,
				strings.Repeat("x", 128) + last: false, "no spaces": false, "ümlaut": false, `a"b`: false,
			} {
				resp, err := w.send(t, greedy("What is 2 + 3?", "stream", last == "2"), given)
				if err != nil {
					t.Fatal(err)
				}
				r := readAll(t, resp)
				id := r.header.Get(idName)
				switch {
				case r.status != http.StatusOK:
					t.Errorf("%q: status %d: %s", given, r.status, r.body)
				case echoed && id != given:
					t.Errorf("%q became %q", given, id)
				case !echoed && (!minted.MatchString(id) || seen[id]):
					t.Errorf("for %q the id %q was generated", given, id)
				case !bytes.Contains(r.body, []byte(`"id":"chatcmpl-`+id+`"`)):
					t.Errorf("%s is not the id of %s", id, r.body)
				}
				seen[id] = true
			}
		}
	})
}

package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	streamstory "github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/polltest"
)

// why returns the story of GET /v1/streams/{id}.
func (w *whence) why(t *testing.T, id string) streamstory.Story {
	t.Helper()
	resp, err := w.http.Get(w.url("/v1/streams/" + id))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var s streamstory.Story
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the story of %s: %d, %v", id, resp.StatusCode, err)
	}
	return s
}

// cancel sends DELETE /v1/streams/{id} to an api-service.
func (w *whence) cancel(t *testing.T, api, id string, headers ...string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodDelete, "http://"+api+"/v1/streams/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("DELETE %s: %d", id, resp.StatusCode)
	}
}

// TestOperatorsHaveAKey checks that top and why work with the operator's key and with the key of
// the stream's owner, and fail without a key.
func TestOperatorsHaveAKey(t *testing.T) {
	t.Parallel()
	w := run(t, allInOne, flags{api: []string{"--operator-key", "op"}, worker: []string{"--pace", "30"}})
	m := w.makeStream(t, greedy(long), "Authorization", "Bearer me")
	m.read(t, w.api).begun()
	for refusal, args := range map[string][]string{"unauthenticated": {"top", "--once"}, "not found": {"why", m.ID}} {
		args = append(args, "--url", w.url(""))
		if out, logs, status := output(t, "whence", args...); status == 0 || !strings.Contains(logs, refusal) {
			t.Errorf("%v without a key: status %d, %q, %q", args, status, out, logs)
		}
		for _, key := range [][]string{{"--operator-key", "op"}, {"--key", "me"}} {
			if out, logs, status := output(t, "whence", append(args, key...)...); status != 0 || !strings.Contains(out, m.ID) {
				t.Errorf("%v with %v: status %d, %q, %q", args, key, status, out, logs)
			}
		}
		if out, logs, status := output(t, "whence", append(args, "--key", "you")...); strings.Contains(out, m.ID) {
			t.Errorf("%v with another key: status %d, %q, %q", args, status, out, logs)
		}
	}
}

var paced = flags{worker: []string{"--pace", "30"}}

func TestEveryHopTellsTheSameStory(t *testing.T) {
	eachTopology(t, paced, func(t *testing.T, w *whence) {
		l := w.open(t, greedy(long)).begun(t)
		id := l.id
		if s := w.why(t, id); s.State != "live" || len(s.Hops) != 3 || s.Model == "" || s.Tokens.Prompt == 0 {
			t.Errorf("while the stream runs: %+v", s)
		}
		w.cancel(t, w.api, id)
		if e := l.failed(t); e.reason() != "user_stop" {
			t.Errorf("the reader got %s", e.reason())
		}
		w.idle(t)
		paths := []string{"client > api-service", "client > api-service > chat-service", "client > api-service > chat-service > llm-worker/0"}
		polltest.Eventually(t, "every hop has ended the stream", func() bool {
			for _, h := range w.why(t, id).Hops {
				if h.State != "ended" {
					return false
				}
			}
			return true
		})
		s := w.why(t, id)
		if s.Reason != "user_stop" || s.Origin != "client" || len(s.Hops) != len(paths) || s.Tokens.Delivered == 0 || s.Tokens.Wasted > 1 {
			t.Errorf("%+v", s)
		}
		for i, h := range s.Hops {
			if got := strings.Join(h.Path, " > "); h.Reason != "user_stop" || got != paths[i] || h.StopHeardMS == nil || h.StopConfirmedMS == nil {
				t.Errorf("%+v", h)
			}
		}
	})
}

func TestWhyPrintsTheStory(t *testing.T) {
	t.Parallel()
	w := run(t, allInOne, flags{})
	l := w.open(t, greedy("What is 2 + 3?"))
	id := l.id
	l.completed(t)
	out, err := exec.Command(binary(t, "whence"), "why", id, "--url", "http://"+w.api).CombinedOutput()
	for _, want := range []string{"completed by engine", "api-service", "chat-service", "engine > llm-worker/0 > chat-service > api-service", "0 wasted"} {
		if err != nil || !bytes.Contains(out, []byte(want)) {
			t.Errorf("%q is missing: %v\n%s", want, err, out)
		}
	}
	out, err = exec.Command(binary(t, "whence"), "why", "nobody", "--url", "http://"+w.api).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("no stream with the id")) {
		t.Errorf("%v\n%s", err, out)
	}
}

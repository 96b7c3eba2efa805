package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	streamstory "github.com/whence-dev/whence/api-service/story"
)

// why returns the story of GET /v1/streams/{id}.
func (w *whence) why(t *testing.T, id string) streamstory.Story {
	t.Helper()
	r := w.get(t, "/v1/streams/"+id)
	var s streamstory.Story
	if err := json.Unmarshal(r.body, &s); err != nil || r.status != http.StatusOK {
		t.Fatalf("the story of %s: %d, %v", id, r.status, err)
	}
	return s
}

// cancel sends DELETE /v1/streams/{id} to an api-service.
func (w *whence) cancel(t *testing.T, api, id string, headers ...string) {
	t.Helper()
	if r := replyTo(t)(w.do(t.Context(), http.MethodDelete, "http://"+api+"/v1/streams/"+id, "", headers...)); r.status != http.StatusAccepted {
		t.Fatalf("DELETE %s: %d %s", id, r.status, r.body)
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

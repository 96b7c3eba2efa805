package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	streamstory "github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/lab"
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
	if r := replyTo(t)(w.do(t.Context(), http.MethodDelete, w.urlAt(api, "/v1/streams/"+id), "", headers...)); r.status != http.StatusAccepted {
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

// TestStoryHasEveryHopThatAStreamHasLeft kills the chat-service of a stream, and then the worker of
// another one. Each worker of the story that still runs has its record there, in the story of
// whichever chat-service is asked, and the lists of streams find the stream by each worker.
func TestStoryHasEveryHopThatAStreamHasLeft(t *testing.T) {
	t.Parallel()
	w := &fleet{whence: assemble(t, lab.Layout{Workers: 2, Chats: 2, Edges: 1, Worker: []string{"--pace", "60"}})}
	hops := w.processes
	killed := map[string]bool{}
	for _, service := range []string{chatService, llmWorker} {
		l := w.open(t, usageOf(greedy(long))).begun(t)
		victim := ""
		for _, hop := range w.why(t, l.id).Hops {
			if strings.HasPrefix(hop.Hop, service+"/") {
				victim = hop.Hop
			}
		}
		if victim == "" {
			t.Fatalf("the story of %s has no %s", l.id, service)
		}
		hops[victim].kill(t)
		killed[victim] = true
		l.completed(t)
		story := w.why(t, l.id)
		if moves := story.Hops[0].Moves; service == chatService && (len(moves) != 1 || moves[0].From != victim || !strings.HasPrefix(moves[0].To, service+"/") || hops[moves[0].To] == nil) {
			t.Errorf("%s killed: the moves are %+v", victim, moves)
		}
		if len(story.Workers) == 0 || service == llmWorker && len(story.Workers) != 2 {
			t.Errorf("%s killed: the workers are %v", victim, story.Workers)
		}
		for _, worker := range story.Workers {
			known := slices.ContainsFunc(story.Hops, func(h streamstory.Hop) bool { return h.Hop == worker })
			if known == killed[worker] {
				t.Errorf("%s killed: the story has %s: %v", victim, worker, known)
			}
			if list := string(w.get(t, "/v1/streams?state=ended&worker="+worker).body); !strings.Contains(list, `"`+l.id+`"`) {
				t.Errorf("%s killed: the list of %s does not have the stream: %s", victim, worker, list)
			}
		}
	}
	if list := string(w.get(t, "/v1/streams?state=ended&worker=nobody").body); list != `{"streams":[]}` {
		t.Error(list)
	}
}

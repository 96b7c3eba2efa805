package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/whence-dev/whence/internal/tier"
)

// keptMixes are the mixes of services that share records in Redis.
var keptMixes = []mix{{false, false, false}, {false, true, true}, {true, false, false}, {true, true, true}}

// otherReplica returns the path through api-service/1.
func (s *scene) otherReplica() *whence {
	other := *s.whence
	other.api = s.addrs[api1]
	return &other
}

// TestReleasesShareKeptStreams: a stream that an api-service of one release writes to Redis is read, resumed,
// repeated, stopped and taken over by one of another release.
func TestReleasesShareKeptStreams(t *testing.T) {
	eachMix(t, keptMixes, func(t *testing.T, m mix) {
		s, _ := replicasOf(t, flags{earlier: m.hops(), worker: []string{"--pace", "100"}})
		ask150 := greedy(long, "max_tokens", 150)
		want := s.answer(t, ask150)
		kept := s.makeStream(t, ask150)
		here, there := kept.read(t, s.addrs[api0]), kept.read(t, s.addrs[api1])
		here.begun()
		here.cut()
		here.url = there.url // as behind a load balancer
		here.begun().rest().completed(want)
		there.begun().rest().completed(want)

		key := []string{"Idempotency-Key", "k"}
		first := s.postStream(t, greedy(short), key...)
		again := replyTo(t)(s.do(t.Context(), http.MethodPost, "http://"+s.addrs[api1]+"/v1/streams", greedy(short), key...))
		if first.status != http.StatusCreated || again.status != http.StatusOK {
			t.Errorf("the same key: status %d: %s\nand at the other release %d: %s", first.status, first.body, again.status, again.body)
		}

		stopped := s.makeStream(t, greedy(long))
		reader := stopped.read(t, s.addrs[api0]).begun()
		s.cancel(t, s.addrs[api1], stopped.ID)
		if reader.rest(); reader.err.reason() != "user_stop" {
			t.Errorf("a stream that was stopped at the other release ends with %q", reader.err.statement())
		}

		orphan := s.makeStream(t, ask150)
		there = orphan.read(t, s.addrs[api1]).begun()
		s.procs[api0].kill(t)
		s.procs[api1].logged(t, "it takes the stream over", func(r record) bool { return r.Msg == "stream moved" && r.Stream == orphan.ID })
		there.rest().completed(want)
		orphan.read(t, s.addrs[api1]).begun().rest().completed(want)
	})
}

// TestReleasesHandKeptStreamsOver: an api-service that drains hands its streams over to one of another
// release.
func TestReleasesHandKeptStreamsOver(t *testing.T) {
	eachMix(t, keptMixes, func(t *testing.T, m mix) {
		s, _ := replicasOf(t, flags{earlier: m.hops(), worker: []string{"--pace", "40"}, api: []string{"--drain", "300ms"}})
		s.handsStreamsOver(t)
	})
}

// TestReleasesShareStoredResponses: a response that one release has stored is read, continued, canceled
// and deleted at another one.
func TestReleasesShareStoredResponses(t *testing.T) {
	eachMix(t, keptMixes, func(t *testing.T, m mix) {
		s, _ := replicasOf(t, flags{earlier: m.hops(), worker: []string{"--pace", "200"}})
		here, there := s.sdk(), s.otherReplica().sdk()
		want := wholeResponse(t, &here, responded(short)).OutputText()
		made := wholeResponse(t, &here, behind(short, 200))
		if got := awaitResponse(t, &there, made.ID); got.OutputText() != want || got.Status != responses.ResponseStatusCompleted {
			t.Errorf("%s", got.RawJSON())
		}
		var all, again eventTail
		stream := here.Responses.NewStreaming(t.Context(), behind(short, 200))
		all.take(t, stream, 9)
		_ = stream.Close()
		id := "resp_" + strings.SplitN(strings.SplitN(all.raw[0], `"id":"resp_`, 2)[1], `"`, 2)[0]
		all.take(t, after(t, &there, id, all.last.SequenceNumber), allEvents)
		again.take(t, after(t, &there, id, -1), allEvents)
		for _, events := range []eventTail{all, again} {
			if events.text.String() != want || events.last.Type != "response.completed" {
				t.Errorf("%s", strings.Join(events.raw, "\n"))
			}
		}
		next := responded("And then?")
		next.PreviousResponseID = param.NewOpt(id)
		if got := wholeResponse(t, &there, next); got.PreviousResponseID != id || got.Usage.InputTokens <= 20 {
			t.Errorf("%s", got.RawJSON())
		}
		running := wholeResponse(t, &here, behind(long, 900))
		if got, err := there.Responses.Cancel(t.Context(), running.ID); err != nil || got.Status != responses.ResponseStatusCancelled {
			t.Errorf("%v: %s", err, got.RawJSON())
		}
		if err := there.Responses.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
		_, err := here.Responses.Get(t.Context(), id, responses.ResponseGetParams{})
		if e, ok := err.(*openai.Error); !ok || e.StatusCode != http.StatusNotFound { //nolint:errorlint // what the SDK returns
			t.Errorf("a response that the other release has deleted: %v", err)
		}
	})
}

// TestReleasesFindEachOther: workers and chat-services of two releases register in etcd, and are found by
// both. When one drains, its streams move to the other release.
func TestReleasesFindEachOther(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	earlierBinary(t)
	for _, leaves := range []string{"llm-worker/0", "llm-worker/1", "chat-service/0", "chat-service/1"} {
		t.Run(leaves+" leaves", func(t *testing.T) {
			t.Parallel()
			server := startEtcd(t)
			procs := map[string]*process{}
			begin := func(service string, args ...string) (edges []*whence) {
				for i, file := range []string{earlierBinary(t), binary(t, "faulty")} {
					hop := service + "/" + string(rune('0'+i))
					p := startFile(t, "faulty", file, slices.Concat([]string{service, "--listen", "127.0.0.1:0", "--log-json", "--name", hop, "--drain", "300ms"}, args)...)
					w := &whence{topology: separate, api: p.listening(t)}
					w.createClient(t)
					procs[hop], edges = p, append(edges, w)
				}
				return edges
			}
			begin(llmWorker, "--pace", "40", "--register", server.workers())
			begin(chatService, "--worker", server.workers(), "--register", server.chats())
			edges := begin(apiService, "--chat", server.chats())
			for _, caller := range []string{"chat-service/0", "chat-service/1", "api-service/0", "api-service/1"} {
				awaitLinks(t, procs[caller], 2)
			}
			var all []*live
			want := ""
			for _, edge := range edges {
				edge.ready(t)
				want = edge.answer(t, greedy(long, "max_tokens", 150))
				for range 4 {
					all = append(all, edge.open(t, greedy(long, "max_tokens", 150)).begun(t))
				}
			}
			procs[leaves].terminate(t)
			for _, l := range all {
				if got := l.completed(t); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			procs[leaves].exit(t)
			for _, edge := range edges {
				edge.works(t)
			}
		})
	}
}

// TestEarlierReleaseGetsNothingThatItWouldMisread: what an earlier release ignores although it changes the
// answer is refused, and everything else is served.
func TestEarlierReleaseGetsNothingThatItWouldMisread(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	prefilled := greedy(short)
	prefilled["messages"] = []any{map[string]any{"role": "user", "content": short}, map[string]any{"role": "assistant", "content": "When"}}
	with := func(a ask, more ...any) ask {
		b := ask{}
		for name, value := range a {
			b[name] = value
		}
		for i := 0; i < len(more); i += 2 {
			b[more[i].(string)] = more[i+1]
		}
		return b
	}
	for hop, refusals := range map[string][]struct {
		question
		status int
		says   string
	}{
		chatService: {
			{question{"/v1/chat/completions", with(prefilled, "continue_final_message", true, "add_generation_prompt", false)}, http.StatusServiceUnavailable, "of an earlier release, which does not know"},
			{question{"/v1/messages", with(prefilled, "max_tokens", 20)}, http.StatusServiceUnavailable, "of an earlier release, which does not know continue_message"},
			{question{"/tokenize", ask{"model": model, "messages": prefilled["messages"], "add_generation_prompt": false, "continue_final_message": true}}, http.StatusServiceUnavailable, "of an earlier release"},
		},
		work: {
			{question{"/v1/chat/completions", greedy(short, "structured_outputs", map[string]any{"regex": "[0-9]+"})}, http.StatusBadRequest, "would ignore structured_outputs"},
			{question{"/v1/completions", texted("Once upon a time", "echo", true, "logprobs", 1)}, http.StatusBadRequest, "would ignore prompt_logprobs"},
		},
	} {
		t.Run(hop, func(t *testing.T) {
			t.Parallel()
			s := stage(t, "", t.TempDir(), flags{earlier: []string{hop}})
			for _, r := range refusals {
				if got := s.postTo(t, r.path, r.body); got.status != r.status || !strings.Contains(string(got.body), r.says) {
					t.Errorf("%s: status %d: %s", r.path, got.status, got.body)
				}
			}
			s.works(t)
			s.idle(t)
		})
	}
}

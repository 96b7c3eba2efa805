package e2e

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/lab"
)

// A tally holds a client's counts of its streams.
type tally struct {
	streams, chunks, prompt, completion int
	stops                               int // answers that the model ended with a token that is counted but not sent
}

// count reads a stream to its end and adds its figures to into. chunks counts its events with text.
func (l *live) count(into *tally, mu *sync.Mutex) error {
	chunks := 0
	for {
		c, err := l.next()
		if err != nil {
			break // the body has ended; l.ending says how
		}
		for _, choice := range c.Choices {
			if choice.Delta.Content != nil && *choice.Delta.Content != "" {
				chunks++
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	into.streams++
	into.chunks += chunks
	if l.finish == "stop" {
		into.stops++
	}
	if l.usage != nil {
		into.prompt += l.usage.Prompt
		into.completion += l.usage.Completion
	}
	if !l.done && l.err == nil {
		return fmt.Errorf("stream %s was cut", l.id)
	}
	return nil
}

// settled waits until every hop has logged the endings of the streams. Their metrics are updated
// before that.
func (w *whence) settled(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		for _, hop := range hops {
			w.ended(t, hop, id)
		}
	}
}

// A want is one expected figure of a scrape.
type want struct {
	name   string
	labels []string
	value  int
}

func (w *whence) shows(t *testing.T, wants ...want) lab.Samples {
	t.Helper()
	s := w.scrape(t)
	for _, want := range wants {
		if got := s.Sum(want.name, want.labels...); got != float64(want.value) {
			t.Errorf("%s %v is %v, want %d", want.name, want.labels, got, want.value)
		}
	}
	return s
}

// everyHop returns the same figure for all three hops.
func everyHop(name string, value int, labels ...string) []want {
	wants := make([]want, 0, len(hops))
	for _, hop := range hops {
		wants = append(wants, want{name, append([]string{"hop=" + hop}, labels...), value})
	}
	return wants
}

func TestMetricsAgreeWithTheClient(t *testing.T) {
	eachTopology(t, flags{all: measured, worker: []string{"--pace", "100"}}, func(t *testing.T, w *whence) {
		done := w.completeStreams(t)
		stopped := w.stopStreams(t, done)
		w.refuseRequests(t)
		w.leaveStreams(t, done, stopped)
	})
}

// prompts are those of the streams that complete.
var prompts = []string{
	short, long, "What is Whence?", "What is 2 + 3?", "What is the capital of Spain?", "Please list five fruits.",
	"Tell me a short story about a bear in the forest.", "Please can you count to 20?", "What is 3 times 4?",
	"How do I run Whence?", "Make JSON with name Anna and age 31.", "What does the llm-worker do?",
}

// completeStreams lets streams complete: then the counts of tokens and messages are equal on both
// sides of each socket, and the counts of bytes nearly equal.
func (w *whence) completeStreams(t *testing.T) tally {
	t.Helper()
	const each = 2
	var total tally
	var mu sync.Mutex
	var wg sync.WaitGroup
	var ids []string
	for i := range each * len(prompts) {
		l := w.open(t, greedy(prompts[i%len(prompts)], "max_tokens", 10+i, "stream_options", map[string]any{"include_usage": true}))
		ids = append(ids, l.id)
		wg.Go(func() {
			if err := l.count(&total, &mu); err != nil || !l.done {
				t.Errorf("[DONE] %t, %v %+v", l.done, err, l.err)
			}
		})
	}
	wg.Wait()
	w.settled(t, ids...)

	if total.stops == 0 || total.stops == total.streams {
		t.Errorf("the model ended %d of %d answers; the test needs both kinds", total.stops, total.streams)
	}
	wants := everyHop("whence_stream_endings_total", total.streams, "reason=completed", "origin=engine")
	for _, same := range [][]want{
		everyHop("whence_stream_endings_total", total.streams),
		everyHop("gen_ai_server_request_duration_seconds_count", total.streams, "gen_ai_response_model="+model),
		everyHop("gen_ai_server_time_to_first_token_seconds_count", total.streams),
		everyHop("gen_ai_server_time_per_output_token_seconds_count", total.streams),
		everyHop("gen_ai_client_token_usage_sum", total.prompt, "gen_ai_token_type=input"),
		everyHop("gen_ai_client_token_usage_sum", total.completion, "gen_ai_token_type=output"),
		everyHop("whence_tokens_total", total.completion, "direction=send"),
		everyHop("whence_tokens_total", total.completion, "direction=recv"),
		everyHop("whence_tokens_wasted_total", 0),
		everyHop("whence_streams_live", 0),
		everyHop("whence_requests_refused_total", 0),
		everyHop("whence_stop_duration_seconds_count", 0),
		{
			{"whence_messages_total", []string{"hop=api-service", "direction=send"}, total.chunks + 2*total.streams}, // including Started and End
			{"whence_queue_duration_seconds_count", []string{"hop=llm-worker/0"}, total.streams},
			{"whence_workers_healthy", []string{"hop=chat-service"}, 1},
			{"whence_workers_known", []string{"hop=chat-service"}, 1},
			{"whence_kv_used", nil, 0},
			{"whence_streams_running", nil, 0},
			{"whence_streams_carried_total", []string{"hop=api-service", "transport=link"}, total.streams},
			{"whence_streams_carried_total", []string{"hop=chat-service", "transport=link"}, total.streams},
		},
	} {
		wants = append(wants, same...)
	}
	s := w.shows(t, wants...)
	if n := s.Sum("whence_batch_size_sum"); n < float64(total.completion) { // one token each, plus the prompt tokens
		t.Errorf("%v places in steps for %d tokens", n, total.completion)
	}
	for _, name := range []string{"whence_messages_total", "whence_bytes_total"} {
		for i := range len(hops) - 1 {
			up, down := s.Sum(name, "hop="+hops[i], "direction=recv"), s.Sum(name, "hop="+hops[i+1], "direction=send")
			about := 0.0
			if name == "whence_bytes_total" { // each side samples one message in eight independently
				about = down / 4
			}
			if math.Abs(up-down) > about || up == 0 {
				t.Errorf("%s: %s has received %v, %s has sent %v", name, hops[i], up, hops[i+1], down)
			}
		}
	}
	for _, hop := range hops { // gaps are counted between messages with tokens
		gaps, sent := s.Sum("whence_message_gap_seconds_count", "hop="+hop, "direction=send"), s.Sum("whence_messages_total", "hop="+hop, "direction=send")
		if gaps != sent-float64(3*total.streams-total.stops) { // all but Started, the first message with tokens, and an End without tokens
			t.Errorf("%s: %v gaps of %v messages", hop, gaps, sent)
		}
	}
	return total
}

// stopStreams lets users stop streams, and deadlines pass.
func (w *whence) stopStreams(t *testing.T, before tally) tally {
	t.Helper()
	var total tally
	var mu sync.Mutex
	var ids []string
	stop := func(reason string, l *live) {
		ids = append(ids, l.id)
		if err := l.count(&total, &mu); err != nil || l.err.reason() != reason {
			t.Errorf("the reader of a stream that must end with %s got %+v, %v", reason, l.err, err)
		}
	}
	const each = 3
	for range each {
		l := w.open(t, greedy(long))
		w.cancel(t, w.api, l.id)
		stop("user_stop", l)
		stop("deadline", w.open(t, greedy(long, "timeout", 0.25)))
	}
	w.settled(t, ids...)
	wants := everyHop("whence_stream_endings_total", each, "reason=user_stop", "origin=client")
	for _, same := range [][]want{
		everyHop("whence_stream_endings_total", each, "reason=deadline", "origin=api-service"),
		everyHop("whence_stream_endings_total", before.streams+2*each),
		everyHop("gen_ai_server_request_duration_seconds_count", each, "error_type=user_stop"),
		everyHop("whence_stop_duration_seconds_count", 2*each),
		everyHop("whence_streams_live", 0),
	} {
		wants = append(wants, same...)
	}
	for i, hop := range hops { // the client does not know the tokens in flight, but each hop reported the reason
		in, out, wasted := before.completion, before.completion, 0
		for _, id := range ids {
			story := w.why(t, id).Hops[i]
			in, out = in+int(story.TokensIn), out+int(story.TokensOut)
			wasted += int(story.TokensIn) - int(story.TokensOut)
		}
		wants = append(wants,
			want{"whence_tokens_total", []string{"hop=" + hop, "direction=recv"}, in},
			want{"whence_tokens_total", []string{"hop=" + hop, "direction=send"}, out},
			want{"whence_tokens_wasted_total", []string{"hop=" + hop}, wasted})
	}
	w.shows(t, wants...)
	return total
}

// refuseRequests sends requests that the edge or a hop below must refuse.
func (w *whence) refuseRequests(t *testing.T) {
	t.Helper()
	before := w.scrape(t)
	resp, err := w.http.Post(w.url("/v1/chat/completions"), "application/json", strings.NewReader("{"))
	if err != nil {
		t.Fatal(err)
	}
	status := []int{readAll(t, resp).status}
	if resp, err = w.http.Get(w.url("/nothing")); err != nil {
		t.Fatal(err)
	}
	status = append(status, readAll(t, resp).status, w.post(t, greedy(short, "model", "nobody")).status, w.post(t, greedy(strings.Repeat("the fox ", 2000))).status)
	if got, want := fmt.Sprint(status), fmt.Sprint([]int{http.StatusBadRequest, http.StatusNotFound, http.StatusNotFound, http.StatusBadRequest}); got != want {
		t.Errorf("statuses %s, want %s", got, want)
	}
	w.shows(t,
		want{"whence_requests_refused_total", []string{"hop=api-service", "reason=invalid"}, 1},
		want{"whence_requests_refused_total", []string{"hop=api-service", "reason=not_found"}, 1},
		want{"whence_requests_refused_total", nil, 2},
		want{"whence_stream_endings_total", []string{"hop=api-service", "reason=not_found", "origin=chat-service"}, 1},
		want{"whence_stream_endings_total", []string{"hop=chat-service", "reason=not_found", "origin=chat-service"}, 1},
		want{"whence_stream_endings_total", []string{"hop=api-service", "reason=invalid", "origin=chat-service"}, 1},
		want{"whence_stream_endings_total", []string{"hop=chat-service", "reason=invalid", "origin=chat-service"}, 1},
		want{"whence_stream_endings_total", []string{"hop=llm-worker/0"}, int(before.Sum("whence_stream_endings_total", "hop=llm-worker/0"))},
	)
}

// leaveStreams lets clients leave, and checks the figures of running streams.
func (w *whence) leaveStreams(t *testing.T, done, stopped tally) {
	t.Helper()
	sent := w.scrape(t).Sum("whence_tokens_total", "hop=api-service", "direction=send")
	var ids []string
	for range 4 {
		l := w.open(t, greedy(long)).begun(t)
		w.shows(t, everyHop("whence_streams_live", 1)...)
		polltest.Eventually(t, "the metrics have the tokens of a running stream", func() bool { // a token is counted after its write
			return w.scrape(t).Sum("whence_tokens_total", "hop=api-service", "direction=send") > sent
		})
		l.close()
		w.clientGone(t, l.id)
		if logged, told := w.ended(t, apiService, l.id).Extent, w.why(t, l.id).Extent; logged != "part" || told != "part" {
			t.Errorf("a client had a part of its answer; the extent in the log is %q, in the story %q", logged, told)
		}
		ids = append(ids, l.id)
	}
	w.settled(t, ids...)
	wants := everyHop("whence_stream_endings_total", len(ids), "reason=client_gone", "origin=client")
	wants = append(wants, want{"whence_clients_left_total", []string{"hop=api-service", "extent=part"}, len(ids)})
	wants = append(wants, everyHop("whence_stop_duration_seconds_count", stopped.streams+len(ids))...)
	wants = append(wants, everyHop("whence_streams_live", 0)...)
	wants = append(wants, want{"whence_stream_endings_total", []string{"hop=llm-worker/0"}, done.streams + stopped.streams + len(ids)})
	w.shows(t, wants...)
}

// measured makes every service answer scrapes.
var measured = []string{"--metrics-listen", "127.0.0.1:0"}

// scrape asks every process once.
func (w *whence) scrape(t *testing.T) (all lab.Samples) {
	t.Helper()
	for _, p := range w.all() {
		all = all.Plus(p.scrape(t))
	}
	return all
}

// scrape asks one process.
func (p *process) scrape(t *testing.T) lab.Samples {
	t.Helper()
	samples, err := p.Scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return samples
}

package metrics_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tally"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A stream joins a stream's metrics and tally as the ledger does.
type stream struct {
	*metrics.Stream
	tally  *tally.Tally
	prompt uint32
}

func begin(h *metrics.Hop) *stream {
	c := tally.New(time.Now())
	return &stream{Stream: h.Begin(c), tally: c}
}

func (s *stream) Started(model string, prompt uint32) {
	s.prompt = prompt
	s.Stream.Started(model)
}

func (s *stream) In(tokens int) { s.tally.Received(tokens, nil) }

func (s *stream) Out(tokens int) {
	if first := s.tally.Sent(tokens, nil); first > 0 {
		s.FirstToken(first)
	}
}

func (s *stream) Unreceived(tokens int) {
	if s.tally.Unreceived(tokens) {
		s.Late(tokens)
	}
}

func (s *stream) End(reason streamerr.Reason, origin string) {
	s.Stream.End(metrics.Ending{At: time.Now(), Reason: reason, Origin: origin, Prompt: s.prompt})
}

func newMetrics(t testing.TB) *metrics.Metrics {
	t.Helper()
	m, err := metrics.New("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// scrape returns the lines of a scrape, except the metrics of Go and of the process.
func scrape(t testing.TB, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	var ours strings.Builder
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		line := strings.TrimPrefix(strings.TrimPrefix(lines.Text(), "# HELP "), "# TYPE ")
		if !strings.HasPrefix(line, "go_") && !strings.HasPrefix(line, "process_") {
			fmt.Fprintln(&ours, lines.Text())
		}
	}
	return ours.String()
}

// value returns one sample of a scrape by its name and labels, or -1 if it is missing.
func value(t testing.TB, scrape, series string) float64 {
	t.Helper()
	for line := range strings.Lines(scrape) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	return -1
}

func expectSamples(t *testing.T, scrape string, want map[string]float64) {
	t.Helper()
	for series, v := range want {
		if got := value(t, scrape, series); got != v {
			t.Errorf("%s is %v, want %v", series, got, v)
		}
	}
	if t.Failed() {
		t.Log(scrape)
	}
}

// gen has the labels of a stream of hop h whose model is m.
const gen = `gen_ai_operation_name="chat",gen_ai_provider_name="whence",gen_ai_response_model="m"`

func TestStreamIsTimedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(t)
		s := begin(m.Hop("h", metrics.Chat))
		s.In(0)
		s.Started("m", 7)
		s.Out(0)
		time.Sleep(3 * time.Second)
		s.In(2)
		s.Out(2)
		for range 4 {
			time.Sleep(20 * time.Millisecond)
			s.In(1)
			time.Sleep(20 * time.Millisecond)
			s.In(1)
			s.Out(2)
		}
		s.tally.Wrote(100)
		s.Unreceived(5)
		expectSamples(t, scrape(t, m), map[string]float64{ // while the stream runs
			`whence_streams_live{hop="h"}`:                                                   1,
			`whence_messages_total{direction="recv",hop="h"}`:                                10,
			`whence_messages_total{direction="send",hop="h"}`:                                6,
			`whence_tokens_total{direction="recv",hop="h"}`:                                  15,
			`whence_tokens_total{direction="send",hop="h"}`:                                  10,
			`whence_bytes_total{direction="send",hop="h"}`:                                   100,
			`whence_message_gap_seconds_count{direction="recv",hop="h"}`:                     8,
			`whence_message_gap_seconds_bucket{direction="recv",hop="h",le="0.01"}`:          0,
			`whence_message_gap_seconds_bucket{direction="recv",hop="h",le="0.025"}`:         8,
			`whence_message_gap_seconds_count{direction="send",hop="h"}`:                     4,
			`whence_message_gap_seconds_bucket{direction="send",hop="h",le="0.025"}`:         0,
			`whence_message_gap_seconds_bucket{direction="send",hop="h",le="0.05"}`:          4,
			`whence_message_gap_seconds_sum{direction="send",hop="h"}`:                       0.16,
			`gen_ai_server_time_to_first_token_seconds_sum{` + gen + `,hop="h"}`:             3,
			`gen_ai_server_request_duration_seconds_count{` + gen + `,hop="h"}`:              -1,
			`whence_stream_endings_total{hop="h",origin="engine",reason="completed"}`:        -1,
			`whence_tokens_wasted_total{hop="h"}`:                                            0,
			`gen_ai_server_time_to_first_token_seconds_bucket{` + gen + `,hop="h",le="2.5"}`: 0,
			`gen_ai_server_time_to_first_token_seconds_bucket{` + gen + `,hop="h",le="5"}`:   1,
		})
		s.End(streamerr.Completed, "engine")
		s.End(streamerr.Internal, "again")
		s.In(100)       // too late
		s.Unreceived(2) // of a call that the stream has abandoned
		expectSamples(t, scrape(t, m), map[string]float64{
			`whence_streams_live{hop="h"}`:                                                  0,
			`whence_messages_total{direction="recv",hop="h"}`:                               10,
			`whence_tokens_total{direction="recv",hop="h"}`:                                 17,
			`whence_message_gap_seconds_count{direction="send",hop="h"}`:                    4,
			`whence_stream_endings_total{hop="h",origin="engine",reason="completed"}`:       1,
			`whence_stream_endings_total{hop="h",origin="other",reason="internal"}`:         -1,
			`gen_ai_server_request_duration_seconds_sum{` + gen + `,hop="h"}`:               3.16,
			`gen_ai_server_time_per_output_token_seconds_sum{` + gen + `,hop="h"}`:          0.02,
			`gen_ai_client_token_usage_sum{` + gen + `,gen_ai_token_type="input",hop="h"}`:  7,
			`gen_ai_client_token_usage_sum{` + gen + `,gen_ai_token_type="output",hop="h"}`: 10,
			`whence_tokens_wasted_total{hop="h"}`:                                           7,
			`gen_ai_server_request_duration_seconds_bucket{` + gen + `,hop="h",le="2.56"}`:  0,
			`gen_ai_server_request_duration_seconds_bucket{` + gen + `,hop="h",le="5.12"}`:  1,
		})
	})
}

func TestLedgerUpdatesTheMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(t)
		hop := m.Hop("chat-service", metrics.Chat)
		l := ledger.Ledger{Metrics: hop}
		r := l.Open("id", "chat-service", "")
		r.Confirmed() // ignored: no stop was requested yet
		r.Started(&llmv1.Started{Model: "m", PromptTokens: 7})
		r.In(3)
		r.Sent(2, nil)
		r.Unreceived(1)
		r.Stopping(&streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client", "api-service")})
		time.Sleep(2 * time.Millisecond)
		r.Confirmed()
		time.Sleep(time.Second)
		r.Confirmed()
		r.End(streamerr.ClientGone, streamerr.NewPath("client", "api-service", "chat-service"), "")
		expectSamples(t, scrape(t, m), map[string]float64{
			`whence_stop_duration_seconds_sum{hop="chat-service"}`:                                                  0.002,
			`whence_stop_duration_seconds_count{hop="chat-service"}`:                                                1,
			`whence_stream_endings_total{hop="chat-service",origin="client",reason="client_gone"}`:                  1,
			`whence_tokens_wasted_total{hop="chat-service"}`:                                                        2,
			`gen_ai_server_request_duration_seconds_count{error_type="client_gone",` + gen + `,hop="chat-service"}`: 1,
			`gen_ai_server_time_per_output_token_seconds_count{` + gen + `,hop="chat-service"}`:                     -1,
			`whence_messages_total{direction="recv",hop="chat-service"}`:                                            1,
			`gen_ai_client_token_usage_sum{` + gen + `,gen_ai_token_type="output",hop="chat-service"}`:              2,
		})
	})
}

func TestStreamsHaveTheLabelOfTheirOperation(t *testing.T) {
	m := newMetrics(t)
	hop := m.Hop("llm-worker/0", metrics.TextCompletion)
	generates, embeds, fails := begin(hop), begin(hop), begin(hop)
	generates.Does("")
	embeds.Does(metrics.Embeddings)
	fails.Does(metrics.Embeddings)
	generates.Started("m", 10)
	embeds.Started("m", 7)
	generates.End(streamerr.Completed, "engine")
	embeds.End(streamerr.Completed, "engine")
	fails.End(streamerr.Overloaded, "llm-worker/0")
	const of = `gen_ai_provider_name="whence",gen_ai_response_model="m"`
	got := scrape(t, m)
	expectSamples(t, got, map[string]float64{
		`gen_ai_client_token_usage_sum{gen_ai_operation_name="text_completion",` + of + `,gen_ai_token_type="input",hop="llm-worker/0"}`:                            10,
		`gen_ai_client_token_usage_sum{gen_ai_operation_name="embeddings",` + of + `,gen_ai_token_type="input",hop="llm-worker/0"}`:                                 7,
		`gen_ai_client_token_usage_count{gen_ai_operation_name="text_completion",` + of + `,gen_ai_token_type="output",hop="llm-worker/0"}`:                         1,
		`gen_ai_client_token_usage_count{gen_ai_operation_name="embeddings",` + of + `,gen_ai_token_type="output",hop="llm-worker/0"}`:                              -1,
		`gen_ai_server_request_duration_seconds_count{gen_ai_operation_name="embeddings",` + of + `,hop="llm-worker/0"}`:                                            1,
		`gen_ai_server_request_duration_seconds_count{error_type="overloaded",gen_ai_operation_name="embeddings",gen_ai_provider_name="whence",hop="llm-worker/0"}`: 1,
	})
}

func TestNilMetricsAcceptAllCalls(t *testing.T) {
	var m *metrics.Metrics
	hop := m.Hop("h", metrics.Chat)
	hop.Refused(streamerr.Invalid)
	hop.Reloaded(true)
	for _, ask := range []func() (func() error, error){
		func() (func() error, error) { return hop.Workers(nil) },
		func() (func() error, error) { return hop.Discovery(nil) },
		func() (func() error, error) { return hop.Load(nil) },
	} {
		if end, err := ask(); err != nil || end() != nil {
			t.Error(err)
		}
	}
	if hop.Engine() != nil {
		t.Error("a nil hop has a non-nil Engine")
	}
	s := begin(hop)
	s.Started("m", 1)
	s.In(1)
	s.Out(1)
	s.tally.Wrote(1)
	s.Unreceived(1)
	s.Stopped(1, streamerr.UserStop)
	s.End(streamerr.Completed, "")
}

// TestLabelsAreBounded: names that a peer gives of itself, its model or a reason do not make
// unbounded series.
func TestLabelsAreBounded(t *testing.T) {
	m := newMetrics(t)
	h := m.Hop("edge/3", metrics.Chat)
	for i, origin := range []string{"client", "llm-worker/7", "edge/3", "edge/4", "evil", "evil/1", "", "engine", "operator"} {
		s := begin(h)
		s.Started(fmt.Sprint("model-", i), 1)
		s.End(streamerr.Reason(1000+i), origin)
	}
	for i := range 1000 {
		s := begin(h)
		s.Started(fmt.Sprint("model-", i), 1)
		s.End(streamerr.Completed, fmt.Sprint("peer-", i))
	}
	text := scrape(t, m)
	expectSamples(t, text, map[string]float64{
		`whence_stream_endings_total{hop="edge/3",origin="client",reason="other"}`:                                                  1,
		`whence_stream_endings_total{hop="edge/3",origin="llm-worker",reason="other"}`:                                              1,
		`whence_stream_endings_total{hop="edge/3",origin="edge",reason="other"}`:                                                    2,
		`whence_stream_endings_total{hop="edge/3",origin="other",reason="other"}`:                                                   3,
		`whence_stream_endings_total{hop="edge/3",origin="other",reason="completed"}`:                                               1000,
		`gen_ai_client_token_usage_count{` + strings.Replace(gen, `"m"`, `"other"`, 1) + `,gen_ai_token_type="input",hop="edge/3"}`: 900,
	})
	if n := strings.Count(text, "gen_ai_server_request_duration_seconds_count"); n > 120 {
		t.Errorf("%d series of one histogram", n)
	}
}

func TestScrapesDuringTrafficOnlyGrow(t *testing.T) {
	m := newMetrics(t)
	h := m.Hop("h", metrics.Chat)
	const goroutines, each = 8, 200
	var wg, scrapers sync.WaitGroup
	stop := make(chan struct{})
	scrapers.Go(func() {
		var before float64
		for {
			now := value(t, scrape(t, m), `whence_tokens_total{direction="send",hop="h"}`)
			if now < before {
				t.Errorf("tokens went from %v to %v", before, now)
			}
			before = now
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range goroutines {
		wg.Go(func() {
			for range each {
				s := begin(h)
				s.Started("m", 1)
				for range 10 {
					s.In(1)
					s.Out(1)
				}
				s.End(streamerr.Completed, "engine")
			}
		})
	}
	wg.Wait()
	close(stop)
	scrapers.Wait()
	expectSamples(t, scrape(t, m), map[string]float64{
		`whence_tokens_total{direction="send",hop="h"}`:                           goroutines * each * 10,
		`whence_stream_endings_total{hop="h",origin="engine",reason="completed"}`: goroutines * each,
		`whence_streams_live{hop="h"}`:                                            0,
	})
}

func TestCollectionReadsTheLoadOfTheEngine(t *testing.T) {
	m := newMetrics(t)
	h := m.Hop("llm-worker/0", metrics.TextCompletion)
	end, err := h.Load(func() metrics.Load { return metrics.Load{Running: 1, Queued: 2, KVUsed: 3, KVLimit: 4} })
	if err != nil {
		t.Fatal(err)
	}
	chat := m.Hop("chat-service", metrics.Chat)
	idle, err := chat.Workers(func() (int, int) { return 1, 2 })
	if err != nil {
		t.Fatal(err)
	}
	alone, err := chat.Discovery(func() int { return 5 })
	if err != nil {
		t.Fatal(err)
	}
	chat.Reloaded(false)
	chat.Unread("[TOOL_CALLS]")
	h.Engine().Admitted(time.Second)
	h.Engine().Stepped(time.Millisecond, 3, true)
	h.Engine().Stepped(2*time.Millisecond, 4, false)
	h.Engine().Paused(3 * time.Second)
	expectSamples(t, scrape(t, m), map[string]float64{
		`whence_streams_running{hop="llm-worker/0"}`:                           1,
		`whence_streams_queued{hop="llm-worker/0"}`:                            2,
		`whence_kv_used{hop="llm-worker/0"}`:                                   3,
		`whence_kv_limit{hop="llm-worker/0"}`:                                  4,
		`whence_workers_healthy{hop="chat-service"}`:                           1,
		`whence_workers_known{hop="chat-service"}`:                             2,
		`whence_discovery_unanswered{hop="chat-service"}`:                      5,
		`whence_config_reloads_total{hop="chat-service",result="refused"}`:     1,
		`whence_calls_unread_total{hop="chat-service",text="[TOOL_CALLS]"}`:    1,
		`whence_queue_duration_seconds_sum{hop="llm-worker/0"}`:                1,
		`whence_step_duration_seconds_sum{hop="llm-worker/0",phase="prefill"}`: 0.001,
		`whence_step_duration_seconds_sum{hop="llm-worker/0",phase="decode"}`:  0.002,
		`whence_batch_size_sum{hop="llm-worker/0"}`:                            7,
		`whence_kv_pause_duration_seconds_sum{hop="llm-worker/0"}`:             3,
	})
	if err := end(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(idle(), alone()); err != nil {
		t.Error(err)
	}
	expectSamples(t, scrape(t, m), map[string]float64{`whence_kv_used{hop="llm-worker/0"}`: -1, `whence_workers_known{hop="chat-service"}`: -1})
}

func TestTokensTakenBackAreWasted(t *testing.T) {
	m := newMetrics(t)
	l := ledger.Ledger{Metrics: m.Hop("h", metrics.Chat)}
	r := l.Open("id", "h", "")
	r.Started(&llmv1.Started{Model: "m"})
	r.In(3)
	r.Sent(3, nil)
	r.TakenBack(3)
	r.In(4)
	r.Sent(4, nil)
	r.End(streamerr.Completed, streamerr.NewPath("engine"), "")
	if p := l.Get("id"); p.GetTokensIn() != 7 || p.GetTokensOut() != 4 {
		t.Error(p)
	}
	expectSamples(t, scrape(t, m), map[string]float64{
		`whence_tokens_wasted_total{hop="h"}`:                                           3,
		`gen_ai_client_token_usage_sum{` + gen + `,gen_ai_token_type="output",hop="h"}`: 4,
		`whence_tokens_total{direction="send",hop="h"}`:                                 7, // a counter never falls
	})
}

// TestScrapeHasVLLMsNames: tools that know only vLLM find load, latencies, tokens and the KV cache.
func TestScrapeHasVLLMsNames(t *testing.T) {
	m := newMetrics(t)
	h := m.Hop("w", metrics.TextCompletion)
	if _, err := h.Load(func() metrics.Load {
		return metrics.Load{Running: 3, Queued: 2, KVUsed: 30, KVLimit: 120, Block: 8, Model: "m"}
	}); err != nil {
		t.Fatal(err)
	}
	s := begin(h)
	s.Started("m", 7)
	s.Out(1)
	s.End(streamerr.Completed, "engine")
	text := scrape(t, m)
	for name, want := range map[string]float64{
		`vllm:num_requests_running{hop="w",model_name="m"}`: 3, `vllm:num_requests_waiting{hop="w",model_name="m"}`: 2, `vllm:kv_cache_usage_perc{hop="w",model_name="m"}`: 0.25,
		`vllm:cache_config_info{block_size="8",hop="w",model_name="m",num_gpu_blocks="15"}`: 1, `whence_streams_running{hop="w"}`: 3,
	} {
		if got := value(t, text, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, part := range []string{"vllm:prompt_tokens_total{", "vllm:generation_tokens_total{", "vllm:e2e_request_latency_seconds_count{", "vllm:time_to_first_token_seconds_count{", `model_name="m"`} {
		if !strings.Contains(text, part) {
			t.Errorf("the scrape lacks %s", part)
		}
	}
}

package command

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A benchService answers each request with the next of its answers, and repeats the last one.
type benchService struct {
	*httptest.Server
	mu      sync.Mutex
	bodies  []map[string]any
	keys    []string
	answers []http.HandlerFunc
}

func serveBench(t *testing.T, answers ...http.HandlerFunc) *benchService {
	t.Helper()
	s := &benchService{answers: answers}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"id":"first"},{"id":"second"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		answer := s.answers[min(len(s.bodies), len(s.answers)-1)]
		s.bodies, s.keys = append(s.bodies, body), append(s.keys, r.Header.Get("Authorization"))
		s.mu.Unlock()
		answer(w, r)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		s.Close()
	})
	return s
}

// sendEvents sends events, and flushes each of them.
func sendEvents(all ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range all {
			_, _ = io.WriteString(w, "data: "+e+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}
}

const (
	roleEvent  = `{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`
	textEvent  = `{"choices":[{"index":0,"delta":{"content":"two words"}}]}`
	thinkEvent = `{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`
	stopEvent  = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usageEvent = `{"choices":[],"usage":{"completion_tokens":6}}`
)

// wholeAnswer is a complete answer: three events with a part of the answer, and six tokens.
var wholeAnswer = sendEvents(roleEvent, thinkEvent, textEvent, textEvent, stopEvent, usageEvent, "[DONE]")

// sendThen sends more after an answer.
func sendThen(first http.HandlerFunc, more func(http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		first(w, r)
		more(w, r)
	}
}

func waitForClient(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// executeBench runs the command, and reads its report.
func executeBench(t *testing.T, s *benchService, args ...string) (r benchReport, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	status = cli.Execute(t.Context(), Bench(), append([]string{"--json", "--url", s.URL}, args...), &out, &errs)
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("status %d, %v: %s%s", status, err, &out, &errs)
	}
	return r, status
}

func TestCompletedStreamsAreMeasured(t *testing.T) {
	s := serveBench(t, wholeAnswer)
	r, status := executeBench(t, s, "--clients", "2", "--requests", "10", "--duration", "1m", "--key", "k", "--body", `{"ignore_eos":true,"max_tokens":null}`)
	if status != 0 || r.Streams != (benchCounts{Begun: 10, Completed: 10}) {
		t.Errorf("status %d, %+v", status, r.Streams)
	}
	if r.Events != 30 || r.Tokens != 60 || !r.UsageKnown || r.TTFT.N != 10 || r.Gap.N != 20 || r.TokensPerSecond <= 0 {
		t.Errorf("%+v", r)
	}
	if len(r.Endings) != 1 || r.Endings[0] != (benchEnding{Reason: "completed (stop)", Count: 10}) {
		t.Error(r.Endings)
	}
	prompts := map[any]bool{}
	for i, body := range s.bodies {
		prompts[body["messages"].([]any)[0].(map[string]any)["content"]] = true
		if body["model"] != "first" || body["stream"] != true || body["ignore_eos"] != true || body["max_tokens"] != nil || s.keys[i] != "Bearer k" {
			t.Error(body, s.keys[i])
		}
	}
	if len(prompts) != 10 {
		t.Errorf("%d different prompts", len(prompts))
	}
}

func TestOpenLoopSendsAllRequests(t *testing.T) {
	r, status := executeBench(t, serveBench(t, wholeAnswer), "--rate", "500", "--requests", "20", "--duration", "1m")
	if status != 0 || r.Streams != (benchCounts{Begun: 20, Completed: 20}) || r.Rate != 500 || r.Clients != maxClients {
		t.Errorf("status %d, %+v", status, r)
	}
}

// TestEndingsAreCountedByReason has one case for each way in which a stream can end.
func TestEndingsAreCountedByReason(t *testing.T) {
	lost := &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath("llm-worker/0", "chat-service"), Message: "gone"}
	full := &streamerr.Error{Reason: streamerr.Overloaded, Path: streamerr.NewPath("chat-service"), Message: "full"}
	for want, answer := range map[string]http.HandlerFunc{
		"completed (stop)":          wholeAnswer,
		"completed":                 sendEvents(textEvent, "[DONE]"),
		"peer_lost by llm-worker/0": sendEvents(textEvent, string(lost.JSON())),
		"overloaded by chat-service": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, string(full.JSON()), http.StatusTooManyRequests)
		},
		"rate_limit_exceeded": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":{"message":"m","code":"rate_limit_exceeded"}}`, http.StatusTooManyRequests)
		},
		"http_503": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "try later", http.StatusServiceUnavailable)
		},
		"error":         sendEvents(`{"error":{"message":"sorry"}}`),
		reasonCut:       sendThen(sendEvents(textEvent), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		reasonMalformed: sendEvents("<html>"),
		reasonSilent:    sendThen(sendEvents(textEvent), waitForClient),
	} {
		t.Run(want, func(t *testing.T) {
			r, status := executeBench(t, serveBench(t, answer), "--clients", "1", "--requests", "1", "--duration", "1m", "--timeout", "300ms")
			failed := !strings.HasPrefix(want, "completed")
			if len(r.Endings) != 1 || r.Endings[0].Reason != want || r.Endings[0].Count != 1 || (status == 1) != failed || (r.Endings[0].Example != "") != failed {
				t.Errorf("status %d, %+v", status, r.Endings)
			}
		})
	}
}

func TestAnswerThatEndsWithoutDoneIsCut(t *testing.T) {
	r, _ := executeBench(t, serveBench(t, sendEvents(textEvent, stopEvent)), "--requests", "1", "--clients", "1")
	if len(r.Endings) != 1 || r.Endings[0].Reason != reasonCut {
		t.Error(r.Endings)
	}
}

func TestClientsLeaveWhenTheTimeIsOver(t *testing.T) {
	s := serveBench(t, sendThen(sendEvents(roleEvent, textEvent), waitForClient), waitForClient)
	r, status := executeBench(t, s, "--clients", "2", "--duration", "500ms")
	if status != 0 || r.Streams != (benchCounts{Begun: 2, Left: 2, Waiting: 1}) || r.Tokens != 1 || r.UsageKnown {
		t.Errorf("status %d, %+v", status, r)
	}
	if len(r.Endings) != 1 || r.Endings[0] != (benchEnding{Reason: reasonLeft, Count: 2}) {
		t.Error(r.Endings)
	}
}

func TestUnreachableServerFails(t *testing.T) {
	s := serveBench(t, wholeAnswer)
	s.CloseClientConnections()
	s.Close()
	r, status := executeBench(t, s, "--model", "m", "--clients", "1", "--requests", "2")
	if status != 1 || len(r.Endings) != 1 || r.Endings[0].Reason != reasonUnreachable || r.Streams.Failed != 2 {
		t.Errorf("status %d, %+v", status, r)
	}
}

func TestReportForPeople(t *testing.T) {
	rec := newBenchRecorder()
	for range 3 {
		rec.first(20 * time.Millisecond)
		rec.gap(10 * time.Millisecond)
	}
	rec.completed("completed (length)", 2, 8)
	rec.failed("peer_lost by w", "the\x1b[2J connection broke")
	rec.left(0)
	r := rec.report(2 * time.Second)
	r.Streams.Unsent, r.Clients = 7, 5
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"LATENCY       P50      P90      P99      MAX      N\n", "first token   20.0ms", "gap           10.0ms", "completed (length)   1\n",
		"12.0 tokens a second, 0.50 streams a second completed, in 2.0 s", "first token when the time was over, which the latencies lack: 1\n", "because all 5 clients were busy, and which the latencies lack: 7\n",
		"peer_lost by w: the[2J connection broke\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}

func TestKindsOfEndingsAreBounded(t *testing.T) {
	rec := newBenchRecorder()
	for i := range 3 * maxEndings {
		rec.failed(strings.Repeat("x", i), "m")
	}
	r := rec.report(time.Second)
	if len(r.Endings) != maxEndings+1 || r.Endings[0] != (benchEnding{Reason: otherEnding, Count: 2 * maxEndings, Example: "m"}) {
		t.Errorf("%d endings; the first is %+v", len(r.Endings), r.Endings[0])
	}
}

func TestWrongOptionsOfBenchAreMisuse(t *testing.T) {
	for want, args := range map[string][]string{
		"--clients is -1":                 {"--clients", "-1"},
		"--rate is -1":                    {"--rate", "-1"},
		"--rate is NaN":                   {"--rate", "NaN"},
		"--duration is 0s":                {"--duration", "0s"},
		"--requests is -1":                {"--requests", "-1"},
		"--max-tokens is 0":               {"--max-tokens", "0"},
		"--timeout is -1s":                {"--timeout", "-1s"},
		`--body is "[]"`:                  {"--body", "[]", "--model", "m"},
		"--body must not turn off":        {"--body", `{"stream":false}`, "--model", "m"},
		`--url is "nowhere"`:              {"--url", "nowhere"},
		"did you mean --clients?":         {"--client", "1"},
		"unexpected argument":             {"argument"},
		"is an api-service running there": {"--url", "http://127.0.0.1:1"},
	} {
		var out, errs bytes.Buffer
		if status := cli.Execute(t.Context(), Bench(), args, &out, &errs); status == 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: status %d, %s", args, status, &errs)
		}
	}
}

package command

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A topEdge answers like an api-service. The bodies are those of its routes.
type topEdge struct {
	live, ended, workers string
	status               int
}

func (e *topEdge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if e.status != 0 {
		w.WriteHeader(e.status)
	}
	body := e.live
	switch {
	case r.URL.Path == "/v1/workers":
		body = e.workers
	case r.URL.Query().Get("state") == "ended":
		body = e.ended
	}
	_, _ = w.Write([]byte(body))
}

func serveTop(t *testing.T, e *topEdge) *remote {
	t.Helper()
	s := httptest.NewServer(e)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		s.Close()
	})
	return &remote{URL: s.URL}
}

func healthyEdge() *topEdge {
	return &topEdge{
		live: `{"streams":[
			{"id":"a","state":"live","model":"m","tokens":{"delivered":42},"hops":[{"took_ms":12345,"peer":"10.0.0.1:5","first_token_ms":20,"per_token_ms":25,"longest_gap_ms":30}]},
			{"id":"longer","state":"stopped","reason":"user_stop","tokens":{},"hops":[{"took_ms":40}]}]}`,
		ended: `{"streams":[
			{"id":"e1","state":"ended","reason":"completed","origin":"engine","tokens":{"delivered":7},"hops":[{"took_ms":100,"first_token_ms":1500,"per_token_ms":2.5,"longest_gap_ms":400}]},
			{"id":"e2","state":"ended","reason":"peer_lost","origin":"llm-worker/1","tokens":{"delivered":3},"hops":[{"took_ms":90}]}]}`,
		workers: `{"workers":[{"name":"llm-worker/0","state":"healthy","engine":"openai","server":"vLLM 0.32.0, with a context of 1024 tokens","streams":1,"running":2,"max_running":64,"max_queued":256,"kv_used_tokens":1,"kv_total_tokens":4},
			{"name":"llm-worker/1","state":"down","message":"connection refused"}]}`,
	}
}

// topOnce runs top without a terminal.
func topOnce(t *testing.T, args ...string) (out, errs string, status int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = cli.Execute(t.Context(), Top(), args, &stdout, &stderr)
	return stdout.String(), stderr.String(), status
}

func TestTopWithoutATerminalPrintsOnce(t *testing.T) {
	out, errs, status := topOnce(t, "--url", serveTop(t, healthyEdge()).URL)
	if status != 0 {
		t.Fatal(errs)
	}
	for _, want := range []string{
		"  2 live at http://127.0.0.1:",
		"first token        20ms      1.5s      1.5s\n",
		"per token        2.50ms      25ms      25ms\n",
		"ended        1 peer_lost by llm-worker/1\n",
		"worker       llm-worker/0 healthy, 1 streams, 2/64 running, 0/256 queued, 25% of KV cache: vLLM 0.32.0, with a context of 1024 tokens\n",
		"worker       llm-worker/1 down, 0 streams, 0/0 running, 0/0 queued, - of KV cache: connection refused\n",
		"STREAM  MODEL  AGE    STATE               TOKENS  PEER\n",
		"a       m      12.3s  live                42      10.0.0.1:5\n",
		"longer  -      0s     stopped, user_stop  0       \n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("a file gets the control sequences of a terminal")
	}
}

func TestTopReportsWhyItHasNoFigures(t *testing.T) {
	refusal := string(streamerr.New(streamerr.Draining, "too late").JSON())
	for want, e := range map[string]*topEdge{
		"too late":         {live: refusal, status: http.StatusServiceUnavailable},
		"cannot be parsed": {live: "<p>"},
		"has no hop":       {live: `{"streams":[{"id":"x"}]}`},
	} {
		if _, errs, status := topOnce(t, "--url", serveTop(t, e).URL); status != 1 || !strings.Contains(errs, want) {
			t.Errorf("status %d, %s", status, errs)
		}
	}
	for _, args := range [][]string{{"--every", "0s"}, {"--url", "nowhere"}} {
		if _, errs, status := topOnce(t, args...); status != 2 || !strings.Contains(errs, args[0]) {
			t.Errorf("%v: status %d, %s", args, status, errs)
		}
	}
}

// boardOf returns a board that shows what an api-service answers.
func boardOf(t *testing.T, api *remote) *board {
	t.Helper()
	s := takeSample(t.Context(), api)
	if s.err != nil {
		t.Fatal(s.err)
	}
	return newBoard(api.URL, screen{}, s)
}

func TestScreenFitsItsTerminal(t *testing.T) {
	e := healthyEdge()
	long := strings.Repeat("long", 50)
	e.live = strings.ReplaceAll(e.live, `"longer"`, `"`+long+`"`)
	e.workers = strings.ReplaceAll(e.workers, "connection refused", long)
	b := boardOf(t, serveTop(t, e))
	for _, size := range [][2]int{{80, 24}, {40, 10}, {132, 50}, {20, 3}} {
		for _, ended := range []bool{false, true} {
			b.ended = ended
			lines := b.lines(size[0], size[1])
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n > size[0] {
					t.Errorf("a line has %d columns of %d: %q", n, size[0], line)
				}
			}
			if size[1] >= 24 && len(lines) != size[1] {
				t.Errorf("%d lines of %d", len(lines), size[1])
			}
		}
	}
	if got := strings.Join(b.lines(80, 24), "\n"); !strings.Contains(got, "1 peer_lost by llm-worker/1") || !strings.Contains(got, "ENDED") || !strings.Contains(got, "e2") {
		t.Error(got)
	}
}

func TestRatesSurviveARestart(t *testing.T) {
	var r tokenRates
	begun := time.Unix(0, 0)
	at := func(seconds int, live, ended map[string]uint32) {
		s := topSample{at: begun.Add(time.Duration(seconds) * time.Second)}
		for id, n := range live {
			s.live = append(s.live, story.Story{ID: id, Tokens: story.Tokens{Delivered: n}})
		}
		for id, n := range ended {
			s.ended = append(s.ended, story.Story{ID: id, Tokens: story.Tokens{Delivered: n}})
		}
		r.add(&s)
	}
	want := func(tokens, started, ended float64) {
		t.Helper()
		if a, b, c, ok := r.perSecond(); !ok || a != tokens || b != started || c != ended {
			t.Errorf("%v tokens, %v started, %v ended per second; want %v, %v, %v", a, b, c, tokens, started, ended)
		}
	}
	at(0, map[string]uint32{"a": 100}, map[string]uint32{"old": 1000})
	if _, _, _, ok := r.perSecond(); ok {
		t.Error("one sample has rates")
	}
	at(1, map[string]uint32{"a": 110, "b": 5}, map[string]uint32{"old": 1000, "quick": 3})
	want(18, 2, 1)
	at(2, nil, map[string]uint32{"a": 112, "b": 5, "quick": 3})
	want(10, 1, 1.5)
	r.pause()
	at(4, map[string]uint32{"new": 4}, nil) // the service has restarted
	at(5, map[string]uint32{"new": 9}, nil)
	want(5, 0, 0)
}

func TestBoardKeepsItsFiguresWhileTheServiceIsAway(t *testing.T) {
	api := serveTop(t, healthyEdge())
	b := boardOf(t, api)
	b.add(topSample{err: errors.New("connection refused\nhint")})
	if text, _ := b.status(); !strings.Contains(text, ": connection refused") || strings.Contains(text, "hint") || len(b.last.live) != 2 {
		t.Error(text)
	}
	b.add(takeSample(t.Context(), api))
	if text, _ := b.status(); !strings.HasPrefix(text, "2 live") {
		t.Error(text)
	}
}

func TestKeysSelectStopAndQuit(t *testing.T) {
	api := serveTop(t, healthyEdge())
	b := boardOf(t, api)
	press := func(keys ...key) (quit bool) {
		for _, k := range keys {
			_, quit = b.press(k)
		}
		return quit
	}
	press("j")
	if b.selected != "longer" {
		t.Errorf("selected %q", b.selected)
	}
	press(keyDown, keyUp, keyUp)
	if b.selected != "a" {
		t.Errorf("selected %q", b.selected)
	}
	if press("x"); b.stopping != "a" {
		t.Errorf("asks about %q", b.stopping)
	}
	if press("n"); b.stopping != "" || !strings.Contains(b.message, "continues") {
		t.Error(b.message)
	}
	if press("s"); b.order != byTokens {
		t.Error("the order is the same")
	}
	if press("e"); !b.ended || b.rows()[0].ID != "e1" {
		t.Error("ended streams are not shown")
	}
	if press("\x03") != true || press("q") != true {
		t.Error("top does not quit")
	}
}

func TestKeysAreSplit(t *testing.T) {
	pressed := make(chan key, 10)
	splitKeys(strings.NewReader("j\x1b[Bq\x1b"), pressed)
	var got []key
	for k := range pressed {
		got = append(got, k)
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", []key{"j", keyDown, "q", "\x1b"}) {
		t.Errorf("%q", got)
	}
}

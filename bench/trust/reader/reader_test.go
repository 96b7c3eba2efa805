package reader

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestEndingsAreStrict: a stream has one ending, and nothing after it.
func TestEndingsAreStrict(t *testing.T) {
	const (
		text   = `{"choices":[{"delta":{"content":"x"},"finish_reason":null}]}`
		finish = `{"choices":[{"delta":{},"finish_reason":"length"}]}`
		usage  = `{"choices":[],"usage":{}}`
		fails  = `{"error":{"message":"m","type":"t","whence":{"reason":"draining"}}}`
		done   = "[DONE]"
	)
	for _, c := range []struct {
		want   Ending
		events []string
	}{
		{Completed, []string{text, finish, usage, done}},
		{Failed, []string{text, fails}},
		{Cut, []string{text}},
		{Cut, []string{text, finish}},
		{Cut, []string{text, done}},
		{Cut, []string{text, finish, text, done}},
		{Cut, []string{text, finish, done, text}},
		{Cut, []string{text, finish, done, done}},
		{Cut, []string{text, fails, fails}},
		{Cut, []string{text, fails, done}},
	} {
		resp := &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("data: " + strings.Join(c.events, "\n\ndata: ") + "\n\n"))}
		r := &Reader{Ending: Cut}
		if err := r.answer(resp); r.Ending != c.want {
			t.Errorf("%q: ending %d, %v; want %d", c.events, r.Ending, err, c.want)
		}
	}
}

// TestRequestsBesideTheStreamsAreCounted: a request without an answer counts, and has no time to first
// token.
func TestRequestsBesideTheStreamsAreCounted(t *testing.T) {
	at := time.Now()
	all := []*Reader{{Ending: Refused, Asked: at}, {Ending: Completed, Asked: at, Begun: at.Add(time.Second)}, {Ending: Cut, Asked: at}}
	if n, first := Unanswered(all), TTFT(all); n != 2 || first != time.Second {
		t.Errorf("%d without an answer, time to first token %v", n, first)
	}
	if TTFT(nil) != 0 {
		t.Error("no request has a time to first token")
	}
}

// TestOutputOfAKilledClientIsAStreamThatWasLeft: the last line is cut, and the text before it counts.
func TestOutputOfAKilledClientIsAStreamThatWasLeft(t *testing.T) {
	const text = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"
	r := &Reader{}
	r.Scan(strings.NewReader(text + text + "data: {\"cho"))
	if r.Ending != Left || r.Text() != "xx" || r.Events() != 2 {
		t.Errorf("ending %d with %q in %d events", r.Ending, r.Text(), r.Events())
	}
}

// TestOnlyRequestsWithoutAStreamGoElsewhere: a request may be sent again if it reached no service, or if
// the service drains.
func TestOnlyRequestsWithoutAStreamGoElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		r    Reader
		want bool
	}{
		"no connection": {Reader{Ending: Cut}, true},
		"draining":      {Reader{Ending: Refused, status: 503, Err: streamerr.New(streamerr.Draining, "x")}, true},
		"over a limit":  {Reader{Ending: Refused, status: 429, Err: streamerr.New(streamerr.Overloaded, "x")}, false},
		"a cut stream":  {Reader{Ending: Cut, status: 200}, false},
		"an answer":     {Reader{Ending: Completed, status: 200}, false},
	} {
		if got := c.r.Elsewhere(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

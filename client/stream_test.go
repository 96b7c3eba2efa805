package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whence-dev/whence/client"
)

// A recordedRequest is a request that the service has received.
type recordedRequest struct {
	method, url, body string
	header            http.Header
	at                time.Time
}

// A service answers each request with the next of its answers, and repeats the last one.
type service struct {
	*httptest.Server
	mu      sync.Mutex
	asked   []recordedRequest
	answers []http.HandlerFunc
}

func serve(t *testing.T, answers ...http.HandlerFunc) *service {
	t.Helper()
	s := &service{answers: answers}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	answer := s.answers[min(len(s.asked), len(s.answers)-1)]
	s.asked = append(s.asked, recordedRequest{r.Method, r.URL.String(), string(body), r.Header, time.Now()})
	s.mu.Unlock()
	answer(w, r)
}

func (s *service) requests() []recordedRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// client returns a client of the service.
func (s *service) client(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	o.HTTP = &http.Client{Transport: transport}
	c, err := client.New(s.URL+"/v1/", o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answer(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// errorJSON returns an error object as a service writes it.
func errorJSON(reason client.Reason, path ...string) string {
	whence := map[string]any{"reason": reason, "origin": path[0], "path": path}
	b, _ := json.Marshal(map[string]any{"error": map[string]any{"message": "why", "type": "t", "param": "p", "code": "c", "whence": whence}})
	return string(b)
}

func refusal(status int, reason client.Reason, header ...string) http.HandlerFunc {
	return answer(status, errorJSON(reason, "chat-service", "api-service"), header...)
}

func abort(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// sendEvents sends events and ends the body normally.
func sendEvents(text string) http.HandlerFunc {
	return answer(200, text, "Content-Type", "text/event-stream")
}

// sendAndAbort sends events, then breaks the connection.
func sendAndAbort(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sendEvents(text)(w, r)
		w.(http.Flusher).Flush()
		abort(w, r)
	}
}

// sendAndWait sends events, then waits until the client has gone.
func sendAndWait(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sendEvents(text)(w, r)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

const (
	retry = "retry: 20\n\n"
	made  = `{"id":"str-1","events":"/v1/streams/str-1/events","read_token":"tok"}`
)

func delta(seq int, text string) string {
	b, _ := json.Marshal(text)
	return fmt.Sprintf("id: e.%d\nevent: delta\ndata: {\"text\":%s}\n\n", seq, b)
}

func used(seq int) string {
	return fmt.Sprintf("id: e.%d\nevent: usage\ndata: {\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}\n\n", seq)
}

func end(seq int) string {
	return used(seq) + fmt.Sprintf("id: e.%d\nevent: ending\ndata: {\"reason\":\"completed\",\"finish\":\"stop\",\"path\":[\"engine\",\"api-service\"]}\n\n", seq+1)
}

func failure(seq int, reason client.Reason) string {
	return fmt.Sprintf("id: e.%d\nevent: error\ndata: %s\n\n", seq, errorJSON(reason, "client", "api-service"))
}

func ask() client.Request {
	return client.Request{Model: "m", Messages: []client.Message{{Role: "user", Content: "hi"}}, Temperature: new(0.0), Extra: map[string]any{"seed": 7}, Leave: "linger:30s"}
}

func TestStreamIsMadeReadAndEndsOnce(t *testing.T) {
	s := serve(t, answer(201, made), sendEvents(retry+delta(1, "one ")+delta(2, "two")+end(3)))
	stream, err := s.client(t, client.Options{Key: "k"}).Stream(t.Context(), ask())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for e, err := range stream.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(e.Kind)+" "+e.ID+" "+e.Text)
	}
	if want := "delta e.1 one , delta e.2 two, usage e.3 , ending e.4 "; strings.Join(got, ", ") != want {
		t.Error(got)
	}
	ending := stream.Ending()
	if ending.Reason != client.Completed || ending.Path.String() != "engine > api-service" || ending.Finish != "stop" || ending.Usage.Total != 7 || ending.Err != nil {
		t.Errorf("%+v", ending)
	}
	if text, err := stream.Text(t.Context()); text != "" || err != nil {
		t.Error(text, err)
	}
	all := s.requests()
	if post := all[0]; post.body != `{"messages":[{"role":"user","content":"hi"}],"model":"m","seed":7,"temperature":0}` ||
		post.header.Get("X-Leave") != "linger:30s" || post.header.Get("Idempotency-Key") == "" || post.header.Get("Authorization") != "Bearer k" {
		t.Error(post)
	}
	if all[1].url != "/v1/streams/str-1/events?token=tok" || len(all) != 2 {
		t.Error(all)
	}
}

func TestTextIsTheSameWhereverTheConnectionBreaks(t *testing.T) {
	parts := []string{delta(1, "o🌙e "), delta(2, "two "), delta(3, "three"), used(4), strings.TrimPrefix(end(4), used(4))}
	whole := retry + strings.Join(parts, "")
	var cuts sync.WaitGroup
	defer cuts.Wait()
	for at := len(retry); at < len(whole); at++ { // before retry, the wait would be a second
		cuts.Go(func() {
			s := serve(t, sendAndAbort(whole[:at]), func(w http.ResponseWriter, r *http.Request) {
				_, digits, _ := strings.Cut(r.Header.Get("Last-Event-ID"), ".")
				seq, _ := strconv.Atoi(digits)
				sendEvents(retry+strings.Join(parts[seq:], ""))(w, r)
			})
			stream := s.client(t, client.Options{}).Resume("str-1", client.Cursor{})
			text, err := stream.Text(t.Context())
			if text != "o🌙e two three" || err != nil || stream.Ending().Usage == nil || len(s.requests()) != 2 {
				t.Errorf("cut at %d: %q %v %+v", at, text, err, stream.Ending())
			}
		})
	}
}

func TestLostAnswerIsRetriedUnderTheSameKey(t *testing.T) {
	s := serve(t, abort, refusal(503, client.Draining), answer(200, made))
	stream, err := s.client(t, client.Options{}).Stream(t.Context(), client.Request{Key: "mine"})
	if err != nil || stream.ID() != "str-1" {
		t.Fatal(err)
	}
	for _, r := range s.requests() {
		if r.header.Get("Idempotency-Key") != "mine" {
			t.Error(r.header)
		}
	}
}

func TestBackoffGrowsWithEachBreak(t *testing.T) {
	s := serve(t, sendAndAbort("retry: 200\n\n"+delta(1, "a")), abort, sendEvents(delta(1, "")+end(2)))
	stream := s.client(t, client.Options{}).Resume("x", client.Cursor{Last: "e.0"})
	if text, err := stream.Text(t.Context()); text != "a" || err != nil {
		t.Fatal(text, err)
	}
	all := s.requests()
	for i, least := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond} {
		if waited := all[i+1].at.Sub(all[i].at); waited < least {
			t.Errorf("wait %d: %v", i, waited)
		}
		if want := []string{"e.0", "e.1", "e.1"}[i]; all[i].header.Get("Last-Event-ID") != want {
			t.Error(all[i].header)
		}
	}
}

func TestSilenceAndEarlyEndsAreBreaks(t *testing.T) {
	s := serve(t, sendEvents(retry+delta(1, "a")), sendAndWait(retry+delta(2, "b")), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, sendEvents(retry+end(3)))
	text, err := s.client(t, client.Options{Silence: time.Second}).Resume("x", client.Cursor{}).Text(t.Context())
	if text != "ab" || err != nil || len(s.requests()) != 4 {
		t.Error(text, err)
	}
}

func TestEachRetryIsTold(t *testing.T) {
	s := serve(t, refusal(503, client.Unavailable, "Retry-After", "0"), answer(201, made),
		sendAndAbort(retry+delta(1, "a")), abort, sendEvents(retry+delta(2, "b")), sendEvents(failure(3, client.PeerLost)))
	var told []string
	o := client.Options{OnRetry: func(attempt int, failure *client.Error) {
		told = append(told, fmt.Sprint(attempt, " ", string(failure.Reason)))
	}}
	stream, err := s.client(t, o).Stream(t.Context(), ask())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := stream.Text(t.Context()); text != "ab" || !errors.Is(err, client.PeerLost) || stream.Ending().Err.GaveUp {
		t.Error(text, err)
	}
	if got := strings.Join(told, ", "); got != "2 unavailable, 2 peer_lost, 3 peer_lost, 2 peer_lost" {
		t.Error(got)
	}
}

func TestPatienceEndsWithATypedEnding(t *testing.T) {
	s := serve(t, sendAndAbort(retry+delta(1, "a")), abort)
	stream := s.client(t, client.Options{Patience: 300 * time.Millisecond}).Resume("x", client.Cursor{})
	for range 2 {
		_, err := stream.Text(t.Context())
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Reason != client.PeerLost || e.Path.String() != "api-service" || !e.GaveUp || stream.Ending().Err != e {
			t.Errorf("%v %+v", err, stream.Ending())
		}
	}
}

func TestWithoutPatienceThereIsOneAttempt(t *testing.T) {
	s := serve(t, abort)
	if _, err := s.client(t, client.Options{Patience: -1}).Stream(t.Context(), ask()); !errors.Is(err, client.PeerLost) || len(s.requests()) > 1 {
		t.Error(err, len(s.requests()))
	}
}

func TestFailureHasReasonPathAndText(t *testing.T) {
	s := serve(t, sendEvents(retry+delta(1, "part")+failure(2, client.UserStop)+delta(3, "never")))
	stream := s.client(t, client.Options{}).Resume("x", client.Cursor{})
	text, err := stream.Text(t.Context())
	if text != "part" || !errors.Is(err, client.UserStop) || err.Error() != "user stop: why [client > api-service]" || stream.Ending().Path.Origin() != "client" {
		t.Error(text, err)
	}
}

func TestRefusalsAreTypedAndFinal(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   client.Reason
	}{
		"invalid":      {refusal(400, client.Invalid), client.Invalid},
		"deadline":     {refusal(504, client.Deadline), client.Deadline},
		"a proxy":      {answer(404, "<html>"), client.NotFound},
		"a teapot":     {answer(418, `{"error":"tea"}`), client.Invalid},
		"a page":       {answer(200, "<html>", "Content-Type", "text/html"), client.Internal},
		"a flood":      {answer(201, strings.Repeat(" ", 2<<20)), client.Internal},
		"half JSON":    {sendEvents("id: e.1\nevent: delta\ndata: {\"tex\n\n"), client.Internal},
		"no text":      {sendEvents("id: e.1\nevent: delta\ndata: {}\n\n"), client.Internal},
		"no usage":     {sendEvents("id: e.1\nevent: usage\ndata: null\n\n"), client.Internal},
		"no reason":    {sendEvents("id: e.1\nevent: ending\ndata: {}\n\n"), client.Internal},
		"no error":     {sendEvents("id: e.1\nevent: error\ndata: null\n\n"), client.Internal},
		"other error":  {sendEvents("id: e.1\nevent: error\ndata: {\"error\":{\"message\":\"m\",\"code\":7}}\n\n"), client.Internal},
		"endless":      {sendEvents("data: " + strings.Repeat("x", 5<<20)), client.Internal},
		"another time": {refusal(429, client.Overloaded, "Retry-After", "3600"), client.Overloaded},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.answer)
			whence := s.client(t, client.Options{})
			_, err := whence.Resume("x", client.Cursor{}).Text(t.Context())
			if _, ok := errors.AsType[*client.Error](err); !ok || !errors.Is(err, c.want) || len(s.requests()) != 1 {
				t.Errorf("read %d times: %v", len(s.requests()), err)
			}
			if _, err := whence.Stream(t.Context(), ask()); !errors.Is(err, c.want) && !errors.Is(err, client.Internal) {
				t.Error(err)
			}
		})
	}
}

func TestEventsOfLaterVersionsAreIgnored(t *testing.T) {
	s := serve(t, sendEvents("id: e.1\nevent: mood\ndata: good\n\n"+delta(2, "a")+end(3)))
	if text, err := s.client(t, client.Options{}).Resume("x", client.Cursor{}).Text(t.Context()); text != "a" || err != nil {
		t.Error(text, err)
	}
}

func TestCursorOfTheEndingReturnsOnlyTheEnding(t *testing.T) {
	s := serve(t, answer(204, ""), sendEvents(delta(1, "a")+end(2)))
	stream := s.client(t, client.Options{}).Resume("x", client.Cursor{Last: "e.3"})
	if text, err := stream.Text(t.Context()); text != "" || err != nil || stream.Ending().Usage == nil {
		t.Error(text, err)
	}
}

func TestLoopContinuesAfterBreak(t *testing.T) {
	s := serve(t, sendAndWait(delta(1, "a")+delta(2, "b")), sendEvents(delta(2, "b")+end(3)))
	stream := s.client(t, client.Options{}).Resume("x", client.Cursor{})
	for range stream.Events(t.Context()) {
		for _, err := range stream.Events(t.Context()) {
			if !errors.Is(err, client.Invalid) {
				t.Error("two loops at once:", err)
			}
		}
		break
	}
	if stream.Ending() != nil || stream.Cursor().Last != "e.1" {
		t.Error(stream.Ending(), stream.Cursor())
	}
	if text, err := stream.Text(t.Context()); text != "b" || err != nil {
		t.Error(text, err)
	}
}

func TestContextLeavesTheStream(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := serve(t, hang).client(t, client.Options{}).Stream(short, ask()); !errors.Is(err, client.Deadline) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	enough := errors.New("enough")
	many := serve(t, sendEvents(delta(1, "a")+delta(2, "b")+end(3))).client(t, client.Options{}).Resume("x", client.Cursor{})
	ctx, leave := context.WithCancelCause(t.Context())
	defer leave(nil)
	n := 0
	for range many.Events(ctx) {
		n++
		leave(enough)
	}
	if n != 2 || many.Cursor().Last != "e.1" {
		t.Error("the loop continued after the end of the context:", n, many.Cursor())
	}
	for _, first := range []http.HandlerFunc{sendAndWait(delta(1, "a")), sendAndAbort("retry: 30000\n\n" + delta(1, "a"))} {
		stream := serve(t, first).client(t, client.Options{}).Resume("x", client.Cursor{})
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		n := 0
		for _, err := range stream.Events(ctx) {
			if n++; n == 1 {
				time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
			} else if !errors.Is(err, client.ClientGone) || !errors.Is(err, enough) {
				t.Error(err)
			}
		}
		if n != 2 || stream.Ending() != nil {
			t.Error(n, stream.Ending())
		}
	}
}

func TestStopIsRetriedUntilItIsAnswered(t *testing.T) {
	s := serve(t, abort, answer(202, "{}"), refusal(404, client.NotFound), refusal(403, client.Forbidden))
	stream := s.client(t, client.Options{Key: "k"}).Resume("str/1", client.Cursor{})
	for range 2 { // accepted; the stream has ended
		if err := stream.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := stream.Stop(t.Context()); !errors.Is(err, client.Forbidden) {
		t.Error(err)
	}
	for _, r := range s.requests() {
		if r.method != http.MethodDelete || r.url != "/v1/streams/str%2F1" || r.header.Get("Authorization") != "Bearer k" {
			t.Error(r)
		}
	}
}

func TestBadInputIsRefusedAtOnce(t *testing.T) {
	for _, url := range []string{"", "nowhere", "ftp://x", "http://", "http://%zz"} {
		if _, err := client.New(url, client.Options{}); !errors.Is(err, client.Invalid) {
			t.Error(url, err)
		}
	}
	s := serve(t, answer(500, "no request is expected"))
	for _, req := range []client.Request{{Leave: "a\nb"}, {Key: "a\rb"}, {Extra: map[string]any{"f": func() {}}}} {
		if _, err := s.client(t, client.Options{}).Stream(t.Context(), req); !errors.Is(err, client.Invalid) || len(s.requests()) != 0 {
			t.Error(err)
		}
	}
}

func TestEventsHaveReasoningAndToolCalls(t *testing.T) {
	const parts = "id: e.1\nevent: delta\ndata: {\"text\":\"\",\"reasoning\":\"hm\",\"calls\":[{\"index\":0,\"id\":\"1\",\"name\":\"f\",\"arguments\":\"{\"}]}\n\n" +
		"id: e.2\nevent: delta\ndata: {\"text\":\"a\",\"calls\":[{\"index\":0,\"arguments\":\"}\"},{\"index\":1,\"id\":\"2\",\"name\":\"g\",\"arguments\":\"{}\"}]}\n\n"
	s := serve(t, sendEvents(parts+end(3)))
	var calls []client.Call
	thought, text := "", ""
	for e, err := range s.client(t, client.Options{}).Resume("x", client.Cursor{}).Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		thought, text, calls = thought+e.Reasoning, text+e.Text, client.Join(calls, e.Calls)
	}
	if thought != "hm" || text != "a" || len(calls) != 2 || calls[0] != (client.Call{ID: "1", Name: "f", Arguments: "{}"}) || calls[1].Name != "g" {
		t.Error(thought, text, calls)
	}
}

func TestToolsAndCallsHaveTheFormOfChatCompletions(t *testing.T) {
	b, err := json.Marshal([]any{
		client.Tool{Name: "f", Parameters: map[string]any{"type": "object"}}, client.Call{ID: "1", Name: "f", Arguments: "{}"},
		client.Message{Role: "tool", Content: "x", ToolCallID: "1"},
	})
	want := `[{"function":{"name":"f","parameters":{"type":"object"}},"type":"function"},` +
		`{"function":{"arguments":"{}","name":"f"},"id":"1","type":"function"},{"role":"tool","content":"x","tool_call_id":"1"}]`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
}

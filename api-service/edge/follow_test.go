package edge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

type keptStream struct {
	ID, Events string
	Token      string `json:"read_token"`
}

// ask sends a request with headers, each a name and a value.
func ask(t *testing.T, method, url, body string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func whole(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		b = append(b, "CUT"...)
	}
	return string(b)
}

func asking(script string) string {
	return `{"model":"m","messages":[{"role":"user","content":"` + script + `"}]}`
}

// makeStream creates a stream, which must start.
func makeStream(t *testing.T, url, script string, headers ...string) keptStream {
	t.Helper()
	resp := ask(t, http.MethodPost, url+"/v1/streams", asking(script), headers...)
	body := whole(t, resp)
	var m keptStream
	if err := json.Unmarshal([]byte(body), &m); err != nil || resp.StatusCode != http.StatusCreated || resp.Header.Get("Location") != m.Events {
		t.Fatal(resp.StatusCode, body, err)
	}
	return m
}

// An event is one server-sent event of a reader.
type event struct{ id, name, data string }

func (e event) text() string {
	var d struct{ Text string }
	_ = json.Unmarshal([]byte(e.data), &d)
	return d.Text
}

// next reads one event; ok is false at the end of the body.
func next(t *testing.T, r *bufio.Reader) (e event, ok bool) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return event{}, false
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if e.data != "" {
				return e, true
			}
		}
	}
}

// events reads a reader's body to its end.
func events(t *testing.T, resp *http.Response) (all []event, text string) {
	t.Helper()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.StatusCode, whole(t, resp))
	}
	r := bufio.NewReader(resp.Body)
	for {
		e, ok := next(t, r)
		if !ok {
			return all, text
		}
		all = append(all, e)
		text += e.text()
	}
}

const story = "start m say one wait 20ms say two wait 20ms say three wait 20ms end x"

func TestStreamIsFollowedResumedAndOver(t *testing.T) {
	url, chat := start(t, nil)
	m := makeStream(t, url, "start m say one hold x say two hold x say three hold x end x")
	resp := ask(t, http.MethodGet, url+m.Events, "")
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") || resp.Header.Get("X-Request-Id") != m.ID {
		t.Error(resp.Header)
	}
	defer resp.Body.Close()
	var all []event
	text, r := "", bufio.NewReader(resp.Body)
	for e, ok := next(t, r); ok; e, ok = next(t, r) {
		all, text = append(all, e), text+e.text()
		if e.text() != "" {
			chat.release <- struct{}{}
		}
	}
	if text != "onetwothree" || len(all) != 5 || all[3].name != "usage" || all[4].name != "ending" ||
		all[4].data != `{"reason":"completed","finish":"stop","path":["chat-service","api-service"]}` {
		t.Fatalf("%q %+v", text, all)
	}
	for i, e := range all {
		query := strings.Replace(m.Events+"?last_event_id=", "events?", "events?x=1&", 1) + e.id
		for how, resp := range map[string]*http.Response{
			"header": ask(t, http.MethodGet, url+m.Events, "", "Last-Event-ID", e.id),
			"query":  ask(t, http.MethodGet, url+query, ""),
			"both":   ask(t, http.MethodGet, url+m.Events+"?last_event_id="+all[0].id, "", "Last-Event-ID", e.id),
		} {
			if i == len(all)-1 {
				if body := whole(t, resp); resp.StatusCode != http.StatusNoContent || body != "" {
					t.Errorf("after the end: %d %s", resp.StatusCode, body)
				}
				continue
			}
			rest, _ := events(t, resp)
			want := len(all) - i - 1
			if i < 2 {
				want = 3 // the rest of the text arrives in one event
			}
			if len(rest) != want || rest[len(rest)-1] != all[4] {
				t.Errorf("after %s by %s: %+v", e.id, how, rest)
			}
		}
	}
	epoch, _, _ := strings.Cut(all[0].id, ".")
	for cursor, want := range map[string]int{"what": 400, epoch: 400, epoch + ".x": 400, "other.1": 409, epoch + ".6": 409, epoch + ".0": 200} {
		resp := ask(t, http.MethodGet, url+m.Events, "", "Last-Event-ID", cursor)
		if body := whole(t, resp); resp.StatusCode != want || want != 200 && !strings.Contains(body, `"param":"Last-Event-ID"`) {
			t.Errorf("%s: %d %s", cursor, resp.StatusCode, body)
		}
	}
	resp = ask(t, http.MethodGet, url+"/v1/streams/str-nobody/events", "")
	if body := whole(t, resp); resp.StatusCode != http.StatusNotFound {
		t.Error(resp.StatusCode, body)
	}
}

func TestForgottenStreamIsGone(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.Replay = replay.Limits{TTL: time.Millisecond} })
	m := makeStream(t, url, "start m end x")
	awaitGone(t, url+m.Events)
}

// awaitGone asks until the status is 410, and returns that answer.
func awaitGone(t *testing.T, url string, headers ...string) (body string) {
	t.Helper()
	polltest.Eventually(t, "the events are gone", func() bool {
		resp := ask(t, http.MethodGet, url, "", headers...)
		body = whole(t, resp)
		return resp.StatusCode == http.StatusGone
	})
	return body
}

func TestRefusedRequestMakesNoStream(t *testing.T) {
	url, _ := start(t, nil)
	for script, want := range map[string]int{"fail invalid": 400, "fail overloaded": 429, "wait 20ms fail not_found": 404} {
		for _, key := range []string{script, script, ""} { // the idempotency key is free again
			resp := ask(t, http.MethodPost, url+"/v1/streams", asking(script), "Idempotency-Key", key)
			if body := whole(t, resp); resp.StatusCode != want || !strings.Contains(body, `"path":["chat-service","api-service"]`) {
				t.Errorf("%s: %d %s", script, resp.StatusCode, body)
			}
			after := ask(t, http.MethodGet, url+"/v1/streams/"+resp.Header.Get("X-Request-Id")+"/events", "")
			reason := `"reason":"` + script[strings.LastIndex(script, " ")+1:] + `"`
			if key == "" { // no retry can have got the id
				if body := whole(t, after); after.StatusCode != http.StatusGone || !strings.Contains(body, reason) {
					t.Errorf("%s: its events are %d %s", script, after.StatusCode, body)
				}
			} else if all, _ := events(t, after); len(all) != 1 || all[0].name != "error" || !strings.Contains(all[0].data, reason) {
				t.Errorf("%s: a retry that has got its id reads %+v", script, all)
			}
		}
	}
	for _, headers := range [][]string{{"X-Leave", "never"}, {"Idempotency-Key", strings.Repeat("k", 256)}} {
		resp := ask(t, http.MethodPost, url+"/v1/streams", asking("start m end x"), headers...)
		if body := whole(t, resp); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, `"param":"`+headers[0]+`"`) {
			t.Error(resp.StatusCode, body)
		}
	}
}

func TestLateRefusalIsTheEndingOfAStream(t *testing.T) {
	url, chat := start(t, func(c *edge.Config) { c.HeadersAfter = 10 * time.Millisecond })
	m := makeStream(t, url, "hold x fail overloaded")
	close(chat.release)
	all, _ := events(t, ask(t, http.MethodGet, url+m.Events, ""))
	if len(all) != 1 || all[0].name != "error" || !strings.Contains(all[0].data, `"reason":"overloaded"`) {
		t.Error(all)
	}
}

func TestClientCannotChooseTheIDOfAKeptStream(t *testing.T) {
	url, _ := start(t, nil)
	m := makeStream(t, url, "start m end x", "X-Request-Id", "guess-me")
	if !strings.HasPrefix(m.ID, "str-") {
		t.Error(m.ID)
	}
}

func TestIdempotencyKeyMakesOneStream(t *testing.T) {
	url, chat := start(t, nil)
	m := makeStream(t, url, story, "Idempotency-Key", "k")
	again := ask(t, http.MethodPost, url+"/v1/streams", asking(story), "Idempotency-Key", "k")
	if body := whole(t, again); again.StatusCode != http.StatusOK || !strings.Contains(body, m.ID) || again.Header.Get("X-Request-Id") != m.ID {
		t.Error(again.StatusCode, body)
	}
	other := ask(t, http.MethodPost, url+"/v1/streams", asking("start m end x"), "Idempotency-Key", "k")
	if body := whole(t, other); other.StatusCode != http.StatusConflict || !strings.Contains(body, `"param":"Idempotency-Key"`) {
		t.Error(other.StatusCode, body)
	}
	if len(chat.begun) != 1 {
		t.Errorf("%d streams have begun", len(chat.begun))
	}
	somebody := makeStream(t, url, "start m end x", "Idempotency-Key", "k", "Authorization", "Bearer other")
	if somebody.ID == m.ID {
		t.Error("two owners share an idempotency key")
	}
}

func TestOnlyAuthorizedCallersReadAStream(t *testing.T) {
	url, _ := start(t, nil)
	m := makeStream(t, url, story, "Authorization", "Bearer me")
	for name, c := range map[string]struct {
		query   string
		headers []string
		want    int
	}{
		"nobody":         {"", nil, 404},
		"a stranger":     {"", []string{"Authorization", "Bearer you"}, 404},
		"the owner":      {"", []string{"Authorization", "Bearer me"}, 200},
		"a token":        {"?token=" + m.Token, nil, 200},
		"a wrong token":  {"?token=x" + m.Token, nil, 404},
		"an empty token": {"?token=", nil, 404},
	} {
		resp := ask(t, http.MethodGet, url+m.Events+c.query, "", c.headers...)
		if body := whole(t, resp); resp.StatusCode != c.want {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
}

func TestReadersThroughAProxyNeedAToken(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.TrustForwarded = true })
	m := makeStream(t, url, "start m end x")
	for query, want := range map[string]int{"": 404, "?token=" + m.Token: 200} {
		resp := ask(t, http.MethodGet, url+m.Events+query, "")
		if body := whole(t, resp); resp.StatusCode != want {
			t.Errorf("%q: %d %s", query, resp.StatusCode, body)
		}
	}
}

func TestStopEndsTheStreamForAllReaders(t *testing.T) {
	url, chat := start(t, nil)
	m := makeStream(t, url, "start m say hi wait 1m say never")
	first := ask(t, http.MethodGet, url+m.Events, "")
	r := bufio.NewReader(first.Body)
	if e, ok := next(t, r); !ok || e.text() != "hi" {
		t.Fatal(e)
	}
	if resp := ask(t, http.MethodDelete, url+"/v1/streams/"+m.ID, ""); whole(t, resp) == "" || resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp.StatusCode)
	}
	e, _ := next(t, r)
	if e.name != "error" || !strings.Contains(e.data, `"reason":"user_stop"`) || !strings.Contains(e.data, `"path":["client","api-service"]`) {
		t.Error(e)
	}
	_ = first.Body.Close()
	if cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes)); cause.Reason != streamerr.UserStop {
		t.Error(cause)
	}
	all, text := events(t, ask(t, http.MethodGet, url+m.Events, ""))
	if text != "hi" || len(all) != 2 || all[1] != e {
		t.Errorf("a late reader has %+v", all)
	}
	if resp := ask(t, http.MethodGet, url+m.Events, "", "Last-Event-ID", e.id); whole(t, resp) != "" || resp.StatusCode != http.StatusNoContent {
		t.Error(resp.StatusCode)
	}
}

// leaveInMidStream begins a plain stream, reads its first text, and leaves.
func leaveInMidStream(t *testing.T, url, script, policy string) http.Header {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(strings.Replace(asking(script), "{", `{"stream":true,`, 1)))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Leave", policy)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	for r := bufio.NewReader(resp.Body); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"content":"one"`) {
			return resp.Header
		}
	}
}

func ended(t *testing.T, url, id string, headers ...string) (s struct {
	State, Reason string
	Tokens        struct{ Generated, Delivered int }
}) {
	t.Helper()
	polltest.Eventually(t, id+" has ended", func() bool {
		if err := json.Unmarshal([]byte(whole(t, ask(t, http.MethodGet, url+"/v1/streams/"+id, "", headers...))), &s); err != nil {
			t.Fatal(err)
		}
		return s.State == "ended"
	})
	return s
}

func TestPlainStreamsHaveLeavePolicies(t *testing.T) {
	var log logtest.Log
	url, chat := startLogging(t, &log, nil)
	script := "start m say one hold x say two say three end x"

	header := leaveInMidStream(t, url, script, "drain")
	log.Await(t, "reader left", "stream="+header.Get("X-Request-Id"))
	chat.release <- struct{}{}
	if s := ended(t, url, header.Get("X-Request-Id")); s.Reason != "completed" || s.Tokens.Delivered != 1 || header.Get("X-Read-Token") != "" {
		t.Errorf("drain: %+v %v", s, header)
	}
	if resp := ask(t, http.MethodGet, url+"/v1/streams/"+header.Get("X-Request-Id")+"/events", ""); whole(t, resp) == "" || resp.StatusCode != http.StatusGone {
		t.Error("drain:", resp.StatusCode)
	}

	header = leaveInMidStream(t, url, script, "detach")
	id := header.Get("X-Request-Id")
	chat.release <- struct{}{}
	if s := ended(t, url, id); s.Reason != "completed" || s.Tokens.Delivered != 3 {
		t.Errorf("detach: %+v", s)
	}
	if _, text := events(t, ask(t, http.MethodGet, url+"/v1/streams/"+id+"/events?token="+header.Get("X-Read-Token"), "")); text != "onetwothree" {
		t.Error("detach:", text)
	}

	header = leaveInMidStream(t, url, "start m say one wait 1m", "linger:50ms")
	if cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes)); cause.Reason != streamerr.ClientGone || !strings.HasPrefix(cause.Message, "the stream has had no reader") {
		t.Error("linger:", cause)
	}
	if s := ended(t, url, header.Get("X-Request-Id")); s.Reason != "client_gone" {
		t.Errorf("linger: %+v", s)
	}

	leaveInMidStream(t, url, "start m say one wait 1m", "cancel")
	if cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes)); cause.Reason != streamerr.ClientGone || cause.Message != "the client closed its connection" {
		t.Error("cancel:", cause)
	}
}

// TestReaderThatReconnectsGetsTheEndingOfADroppedStream: under "cancel" a reader that leaves ends
// the stream, and the stream's events are dropped. A reader that reconnects still gets the ending.
func TestReaderThatReconnectsGetsTheEndingOfADroppedStream(t *testing.T) {
	url, _ := start(t, nil)
	m := makeStream(t, url, "start m say one wait 1m", "X-Leave", "cancel")
	ctx, leave := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+m.Events, nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	next(t, bufio.NewReader(resp.Body))
	leave()
	_ = resp.Body.Close()
	ended(t, url, m.ID)
	body := awaitGone(t, url+m.Events) // the events are dropped a moment after the end
	if e, ok := streamerr.ParseJSON([]byte(body)); !ok || e.Reason != streamerr.ClientGone || e.Path.String() != "client > api-service" {
		t.Errorf("the second reader gets %s", body)
	}
}

func TestDrainedStreamOfManyReadersIsDropped(t *testing.T) {
	var log logtest.Log
	url, chat := startLogging(t, &log, nil)
	m := makeStream(t, url, "start m say one hold x say two end x", "X-Leave", "drain")
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+m.Events, nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	next(t, bufio.NewReader(resp.Body))
	cancel()
	_ = resp.Body.Close()
	log.Await(t, "reader left", "stream="+m.ID)
	close(chat.release)
	if s := ended(t, url, m.ID); s.Reason != "completed" {
		t.Errorf("%+v", s)
	}
	awaitGone(t, url+m.Events)
}

// TestStreamThatIsNotKeptIsReadOnce: with a key whose policy keeps nothing, an answer can be read
// while it is generated, or soon after, but only once.
func TestStreamThatIsNotKeptIsReadOnce(t *testing.T) {
	for _, policy := range []string{"drain", "cancel"} {
		url, _ := start(t, keyFile(t, "keys: [{key: one, tenant: a, leave: "+policy+"}]"))
		for name, script := range map[string]string{"while it runs": story, "after its end": "start m say onetwothree end x"} {
			m := makeStream(t, url, script, bearer("one")...)
			if name == "after its end" {
				ended(t, url, m.ID, bearer("one")...)
			}
			if _, text := events(t, ask(t, http.MethodGet, url+m.Events, "", bearer("one")...)); text != "onetwothree" {
				t.Errorf("%s, %s: the first reader has %q", policy, name, text)
			}
			if name == "after its end" {
				continue // the stream is kept for its first reader for the rest of the time
			}
			ended(t, url, m.ID, bearer("one")...)
			awaitGone(t, url+m.Events, bearer("one")...) // the run closes after its reader has the ending
		}
	}
}

func TestSilenceIsFilledWithComments(t *testing.T) {
	url, chat := start(t, func(c *edge.Config) {
		c.KeepAlive = 20 * time.Millisecond
		c.HeadersAfter = 30 * time.Millisecond
	})
	// read reads two comments in each silence of the script, and then the rest.
	read := func(resp *http.Response) string {
		defer resp.Body.Close()
		var body strings.Builder
		r := bufio.NewReader(resp.Body)
		for range 3 {
			for comments := 0; comments < 2; {
				line, err := r.ReadString('\n')
				if body.WriteString(line); err != nil {
					t.Fatalf("%v after %q", err, &body)
				} else if line == ": keep-alive\n" {
					comments++
				}
			}
			chat.release <- struct{}{}
		}
		rest, err := io.ReadAll(r)
		if body.Write(rest); err != nil {
			t.Fatal(err)
		}
		return body.String()
	}
	const script = "hold x start m hold x say hello hold x end x"
	plain := read(ask(t, http.MethodPost, url+"/v1/chat/completions", strings.Replace(asking(script), "{", `{"stream":true,`, 1)))
	m := makeStream(t, url, script)
	followed := read(ask(t, http.MethodGet, url+m.Events, ""))
	for name, body := range map[string]string{"plain": plain, "events": followed} {
		if strings.Contains(body, ": keep-alive\n\n") || !strings.Contains(body, "hello") {
			t.Errorf("%s: %q", name, body)
		}
	}
	if !strings.HasPrefix(followed, "retry: 1000\n\n") || !strings.HasSuffix(plain, "data: [DONE]\n\n") {
		t.Errorf("%q %q", followed, plain)
	}
}

func TestReaderThatDoesNotReadIsCutWithoutTheStream(t *testing.T) {
	t.Parallel()
	var log logtest.Log
	url, chat := startLogging(t, &log, func(c *edge.Config) {
		c.WriteTimeout, c.MaxUnsent = 3*time.Second, 1<<16
		c.Replay = replay.Limits{StreamBytes: 1 << 26, Bytes: 1 << 26}
	})
	const poured = 30000
	m := makeStream(t, url, "start m pour "+strconv.Itoa(poured)+" wait 1m")
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET "+m.Events+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp := ask(t, http.MethodGet, url+m.Events, "")
	defer resp.Body.Close()
	r, text, n := bufio.NewReader(resp.Body), 0, 0
	for text < poured*1000 {
		e, ok := next(t, r)
		if !ok {
			t.Fatalf("the reader that reads has %d bytes", text)
		}
		text += len(e.text())
		n++
	}
	if text != poured*1000 {
		t.Errorf("%d bytes, in %d events", text, n)
	}
	log.Await(t, "reader left", "reason=slow_reader")
	select {
	case cause := <-chat.causes:
		t.Fatal("the stream ended:", cause)
	default:
	}
	if resp := ask(t, http.MethodDelete, url+"/v1/streams/"+m.ID, ""); whole(t, resp) == "" || resp.StatusCode != http.StatusAccepted {
		t.Error(resp.StatusCode)
	}
	polltest.Receive(t, "the cause of the stop", chat.causes)
}

// TestItemsInFlightAtAStopCompleteTheStream stops a stream after its whole answer has been sent. If the
// hops below completed the stream, the edge completes it too. If they failed, the stop delivers no
// new tokens.
func TestItemsInFlightAtAStopCompleteTheStream(t *testing.T) {
	stopsAt := func(c *edge.Config) {
		c.Stage = func(next stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse]) stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse] {
			return func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
				return func(yield func(*chatv1.GenerateResponse, error) bool) {
					for out, err := range next(ctx, req) {
						if out.GetDelta().GetText() == "two" {
							stream.ControlOf(ctx).Stop(&streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath("client")})
						}
						if !yield(out, err) {
							return
						}
					}
				}
			}
		}
	}
	for script, want := range map[string]string{
		"start m say one say two say three end x":                  "onetwothree ending",
		"start m say one say two say three fail user_stop":         "one error",
		"start m say one wait 20ms say two pour 100 wait 1m end x": "one error",
	} {
		url, _ := start(t, stopsAt)
		m := makeStream(t, url, script)
		all, text := events(t, ask(t, http.MethodGet, url+m.Events, ""))
		if got := text + " " + all[len(all)-1].name; got != want {
			t.Errorf("%s: a reader has %.60q, want %q", script, got, want)
		}
	}
}

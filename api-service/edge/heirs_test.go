package edge_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/api-service/edge/heir"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/replay/redislog"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/redistest"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// testKey signs the read tokens of edges that share a Redis.
const testKey = "a secret of the tests"

// sharing configures an edge for a Redis.
func sharing(redis, name string) func(*edge.Config) {
	return func(c *edge.Config) {
		c.Name, c.Redis, c.TokenKey, c.TakeoverBytes = name, "redis://"+redis+"/0", testKey, edge.DefaultTakeoverBytes
	}
}

// abandonedStream is a stream of an instance named api-a, whose log has one delta. die ends the
// instance. Then another instance takes the stream over.
func abandonedStream(t *testing.T, redis string) (m keptStream, die func()) {
	t.Helper()
	a, err := redislog.New(redislog.Config{URL: "redis://" + redis + "/0", Name: "api-a", Log: slog.New(slog.DiscardHandler), Lost: heir.Lost("api-a")})
	if err != nil {
		t.Fatal(err)
	}
	in := &call.Call{Request: &chatv1.ChatRequest{StreamId: stream.NewID(), Model: "m", Messages: []*chatv1.Message{{Role: "user", Content: "start m wait 1m"}}}}
	head := replay.Head{ID: in.Request.GetStreamId(), Epoch: replay.NewEpoch(), Edge: "api-a", Began: time.Now()}
	heir.Bequeath(&head, in, leave.Policy{Kind: leave.Detach}, streamtrace.Parent{}, edge.DefaultTakeoverBytes)
	if head, err = a.Begin(t.Context(), head); err != nil {
		t.Fatal(err)
	}
	w, err := a.Writer(head.ID, head.Epoch)
	if err != nil {
		t.Fatal(err)
	}
	one := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: "one", Tokens: 1, Ids: []uint32{1}}}}
	if _, err := follow.NewRecorder(w, false, nil).Record(one); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "Redis has the stream", w.Shipped)
	token := follow.NewKeyring(testKey).Token(head.ID, head.Epoch, time.Now().Add(time.Hour))
	m = keptStream{ID: head.ID, Events: "/v1/streams/" + head.ID + "/events", Token: token}
	return m, func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// stopAbandonedStream has an edge stop an abandoned stream, and then take it over. It returns the
// events after the takeover.
func stopAbandonedStream(t *testing.T, base, redis string) (keptStream, []event) {
	t.Helper()
	m, die := abandonedStream(t, redis)
	if resp := ask(t, http.MethodDelete, base+"/v1/streams/"+m.ID, ""); whole(t, resp) == "" || resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp.Status)
	}
	die()
	all, _ := events(t, ask(t, http.MethodGet, base+m.Events+"?token="+m.Token, ""))
	if len(all) == 0 {
		t.Fatal("the stream has no events")
	}
	return m, all
}

// TestStopOfAStreamThatItsInstanceThenTakesOverNamesTheInstanceOnce: the instance that the client
// asks to stop the stream runs the stream later. The closing event is the first event of the heir,
// so no event has the number before its number. A reader that has the closing event already, and
// reconnects over a WebSocket, reads the failure.
func TestStopOfAStreamThatItsInstanceThenTakesOverNamesTheInstanceOnce(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t).Addr
	base, _ := start(t, sharing(redis, "api-b"))
	m, all := stopAbandonedStream(t, base, redis)
	last := all[len(all)-1]
	if last.name != "error" || !strings.Contains(last.data, `"reason":"user_stop"`) || !strings.Contains(last.data, `"path":["client","api-b"]`) || !strings.HasSuffix(last.id, ".1000000002") {
		t.Fatalf("%+v", last)
	}
	if e := readOver(t, base, m, "&last_event_id="+last.id).End(); len(e.Messages) > 0 || e.Code != 4003 || e.Text != "user_stop" {
		t.Errorf("a reader that reconnects gets %+v", e)
	}
}

// TestRetryGetsTheRefusalOfAStreamThatWasNotAdmitted: a client retries its request, at the same
// edge and at another edge, while the first request still waits for a chat-service. Both retries get
// the stream of the first request. Then that stream is refused.
func TestRetryGetsTheRefusalOfAStreamThatWasNotAdmitted(t *testing.T) {
	redis, chats := redistest.New(t).Addr, ""
	first, chat := start(t, func(c *edge.Config) {
		sharing(redis, "api-a")(c)
		chats = c.Chat
	})
	second, _ := start(t, func(c *edge.Config) {
		sharing(redis, "api-b")(c)
		c.Chat = chats
	})
	try := func(base string) (status int, body string) {
		resp := ask(t, http.MethodPost, base+"/v1/streams", asking("hold x fail overloaded"), "Idempotency-Key", "k")
		return resp.StatusCode, whole(t, resp)
	}
	refused := make(chan string, 1)
	go func() {
		status, body := try(first)
		refused <- strconv.Itoa(status) + body
	}()
	polltest.Receive(t, "the beginning of a stream", chat.begun)
	var receipts []keptStream
	for _, base := range []string{first, second} {
		status, body := try(base)
		var m keptStream
		if err := json.Unmarshal([]byte(body), &m); err != nil || status != http.StatusOK {
			t.Fatal(status, body, err)
		}
		receipts = append(receipts, m)
	}
	close(chat.release)
	if got := <-refused; !strings.HasPrefix(got, "429") {
		t.Error(got)
	}
	for _, base := range []string{first, second} {
		for _, m := range receipts {
			all, _ := events(t, ask(t, http.MethodGet, base+m.Events+"?token="+m.Token, ""))
			if len(all) != 1 || all[0].name != "error" || !strings.Contains(all[0].data, `"reason":"overloaded"`) || !strings.Contains(all[0].data, `"path":["chat-service","api-a"]`) {
				t.Errorf("a reader of the refused stream gets %+v", all)
			}
		}
	}
	if status, body := try(second); status != http.StatusTooManyRequests || !strings.Contains(body, `"path":["chat-service","api-b"]`) {
		t.Errorf("the next retry does not begin a stream of its own: %d %s", status, body)
	}
}

package story_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/whence-dev/whence/api-service/story"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// traced returns a record with a header, four of 10,000 messages, and a trailer.
func traced() *streamv1.Record {
	event := func(ms int, kind streamv1.EventKind, side streamv1.Side) *streamv1.Event {
		return &streamv1.Event{At: durationpb.New(time.Duration(ms)*time.Millisecond + 345*time.Microsecond), Kind: kind, Side: side}
	}
	message := func(ms int, index uint64) *streamv1.Event {
		e := event(ms, streamv1.EventKind_EVENT_KIND_SEND, streamv1.Side_SIDE_UP)
		e.Index, e.Bytes, e.Tokens = index, 210, 1
		return e
	}
	header := event(0, streamv1.EventKind_EVENT_KIND_RECV_HEADER, streamv1.Side_SIDE_UP)
	header.Path = []string{"client"}
	trailer := event(900, streamv1.EventKind_EVENT_KIND_SEND_TRAILER, streamv1.Side_SIDE_UP)
	trailer.Code, trailer.Reason, trailer.Path = "OK", streamv1.Reason_REASON_COMPLETED, []string{"engine", "llm-worker/0"}
	return &streamv1.Record{
		StreamId: "id", Hop: "llm-worker/0", Began: at(0), TraceId: "0af7651916cd43dd8448eb211c80319c", MessagesReceived: 10001, MessagesSent: 10000,
		Events: []*streamv1.Event{header, message(12, 0), message(13, 1), message(898, 9998), message(899, 9999), trailer},
	}
}

func TestEventsHaveTheDocumentedJSON(t *testing.T) {
	body := string(story.New([]*streamv1.Record{traced()}).JSON())
	for _, want := range []string{
		`"messages":{"received":10001,"sent":10000}`,
		`"trace":"0af7651916cd43dd8448eb211c80319c"`,
		`{"at_ms":0.345,"kind":"recv_header","side":"up","path":["client"]}`,
		`{"at_ms":12.345,"kind":"send","side":"up","index":0,"bytes":210,"tokens":1}`,
		`{"at_ms":900.345,"kind":"send_trailer","side":"up","code":"OK","reason":"completed","path":["engine","llm-worker/0"]}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing in %s", want, body)
		}
	}
}

func TestPrintWritesEventsAndCountsMessages(t *testing.T) {
	var s story.Story // as the command why reads it
	if err := json.Unmarshal(story.New([]*streamv1.Record{traced()}).JSON(), &s); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := s.Print(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	from := 0
	for _, want := range [][]string{
		{"0.3 ms", "recv_header", "up", "client"},
		{"12.3 ms", "send", "up", "0: 1 tokens, 210 bytes"},
		{"... 9,998 messages ..."},
		{"899.3 ms", "9999: 1 tokens, 210 bytes"},
		{"900.3 ms", "send_trailer", "OK", "completed", "engine > llm-worker/0"},
	} {
		found := false
		for ; from < len(lines) && !found; from++ {
			found = true
			for _, part := range want {
				found = found && strings.Contains(lines[from], part)
			}
		}
		if !found {
			t.Fatalf("%q is missing, or out of order:\n%s", want, b.String())
		}
	}
}

// TestPrintCountsMessagesBesideOtherEvents: messages are missing between a move and the next recorded message.
func TestPrintCountsMessagesBesideOtherEvents(t *testing.T) {
	r := traced()
	lost := &streamv1.Event{At: durationpb.New(14 * time.Millisecond), Kind: streamv1.EventKind_EVENT_KIND_RECV_RST, Side: streamv1.Side_SIDE_DOWN, Code: "LOST"}
	r.Events = slices.Insert(r.Events, 3, lost)
	var b strings.Builder
	if err := story.New([]*streamv1.Record{r}).Print(&b); err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(b.String(), "... 9,996 messages ...")
	if !found || !strings.Contains(before, "LOST") || !strings.Contains(after, "9998: 1 tokens") {
		t.Error(b.String())
	}
}

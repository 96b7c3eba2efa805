package archive_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/sse"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/responses"
	"github.com/whence-dev/whence/api-service/responses/archive"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func started() *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{StreamId: "s", Model: "served"}}}
}

func delta(d *chatv1.Delta) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: d}}
}

func ended(finish llmv1.Finish) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{
		Path: []string{"w", "c"}, Finish: finish, Usage: &llmv1.Usage{PromptTokens: 3, CachedTokens: new(uint32(1)), CompletionTokens: 4, ReasoningTokens: new(uint32(2))},
	}}}
}

// items returns an answer with every feature that an answer may have.
func items() []*chatv1.GenerateResponse {
	likely := []*chatv1.TokenLogprob{{Token: "H\"", Bytes: []byte("H\""), Logprob: -0.25, Top: []*chatv1.TokenLogprob{{Token: "\xef\xbf\xbd", Bytes: []byte{0xe2}, Logprob: -1.5}, {Token: "<s>", Logprob: -9999}}}}
	return []*chatv1.GenerateResponse{
		delta(&chatv1.Delta{Reasoning: "Hm"}), delta(&chatv1.Delta{Reasoning: "…", Text: "\n"}), delta(&chatv1.Delta{Text: "H\"", Logprobs: likely}),
		delta(&chatv1.Delta{}), delta(&chatv1.Delta{Text: "ey <b>\u2028"}),
		delta(&chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Id: "a", Name: "n__f", Arguments: `{"x":`}}}),
		delta(&chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Arguments: `"é"}`}, {Index: 1, Id: "b", Name: "g"}}}),
	}
}

const body = `{"model":"m","input":[{"role":"user","content":"Hi"}],"instructions":"Be kind.","stream":true,"background":true,"service_tier":"flex","top_logprobs":1,
	"include":["reasoning.encrypted_content"],"metadata":{"a":"b"},"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]}`

// A tape is a stored response in progress: the events for its client, and its log.
type tape struct {
	log      *replay.Memory
	call     *call.Call
	head     replay.Head
	recorder *follow.Recorder
	lines    sse.Encoder
	write    call.Writer
	sent     strings.Builder // the events sent to the client of the request
}

func newTape(t *testing.T) *tape {
	t.Helper()
	c, err := responses.Parser(false)([]byte(body), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &tape{log: replay.NewMemory(replay.Limits{}), call: c, write: c.Events(), lines: sse.Encoder{Identity: true}}
	t.Cleanup(func() { _ = r.log.Close() })
	r.head = replay.Head{ID: "s", Epoch: "e", Form: "f", Began: time.Unix(1_800_000_000, 0)}
	r.head.Memo = c.Store.Memo(r.head.Began)
	w, err := r.log.Add(r.head)
	if err != nil {
		t.Fatal(err)
	}
	r.recorder = follow.NewRecorder(w, c.NamesChoices(), c.EndedAt)
	return r
}

func (r *tape) add(t *testing.T, items ...*chatv1.GenerateResponse) {
	t.Helper()
	for _, out := range items {
		if _, err := r.recorder.Record(out); err != nil {
			t.Fatal(err)
		}
		r.write(out, &r.lines)
	}
	r.flush()
}

func (r *tape) fail(t *testing.T, err *streamerr.Error) {
	t.Helper()
	if err := r.recorder.Fail(err); err != nil {
		t.Fatal(err)
	}
	r.call.Failure(err, "s", &r.lines)
	r.flush()
}

func (r *tape) flush() {
	encoded, _ := r.lines.Take()
	r.sent.Write(encoded)
}

// read returns the events of a log from a number on. Each Read gets all events so far, as a slow
// reader does.
func read(t *testing.T, l replay.Log, from int64) string {
	t.Helper()
	in, err := l.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, err := archive.New(in.Head(), from)
	if err != nil {
		t.Fatal(err)
	}
	lines := sse.Encoder{Identity: true}
	if _, err := follow.Each(t.Context(), in, 0, func(e replay.Event) error { return r.Play(e, &lines) }); err != nil {
		t.Fatal(err)
	}
	encoded, _ := lines.Take()
	return string(encoded)
}

// load returns the response as stored in the log.
func load(t *testing.T, l replay.Log) *archive.Response {
	t.Helper()
	in, err := l.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, err := archive.Load(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lastResponse returns the response in the last event.
func lastResponse(events string) string {
	_, last, _ := strings.Cut(events[strings.LastIndex(events, "\ndata: "):], `"response":`)
	last, _, _ = strings.Cut(last, `,"whence":`)
	return last
}

func TestReadersGetTheEventsOfTheRequestsOwnClient(t *testing.T) {
	for name, end := range map[string]func(*tape){
		"completed":  func(r *tape) { r.add(t, ended(llmv1.Finish_FINISH_TOOL_CALLS)) },
		"incomplete": func(r *tape) { r.add(t, ended(llmv1.Finish_FINISH_LENGTH)) },
		"filtered":   func(r *tape) { r.add(t, ended(llmv1.Finish_FINISH_CONTENT_FILTER)) },
		"failed": func(r *tape) {
			r.fail(t, &streamerr.Error{Reason: streamerr.EngineFailed, Path: streamerr.NewPath("engine", "w"), Message: `"lost"`, Code: "context_length_exceeded"})
		},
		"cancelled": func(r *tape) {
			r.fail(t, &streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath("client"), Message: "stopped"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTape(t)
			r.add(t, started())
			r.add(t, items()...)
			end(r)
			if got, want := read(t, r.log, 0), r.sent.String(); got != want {
				t.Fatalf("got\n%s\nwant\n%s", got, want)
			}
			events := strings.SplitAfter(r.sent.String(), "\n\n")
			for after := range len(events) - 1 {
				if got, want := read(t, r.log, int64(after)+1), strings.Join(events[after+1:], ""); got != want {
					t.Fatalf("after %d: got\n%s\nwant\n%s", after, got, want)
				}
			}
			now := load(t, r.log)
			if got, want := string(now.AppendResponse(nil)), lastResponse(r.sent.String()); got != want || !now.Over {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestAResponseIsShownAsItGrows(t *testing.T) {
	r := newTape(t)
	if got := string(load(t, r.log).AppendResponse(nil)); !strings.Contains(got, `"status":"queued"`) || !strings.Contains(got, `"model":"m"`) || !strings.Contains(got, `"service_tier":"flex"`) {
		t.Error(got)
	}
	r.add(t, started(), delta(&chatv1.Delta{Text: "He"}))
	if got := string(load(t, r.log).AppendResponse(nil)); !strings.Contains(got, `"status":"in_progress"`) || !strings.Contains(got, `"model":"served"`) || !strings.Contains(got, `"text":"He"`) || !strings.Contains(got, `"usage":null`) {
		t.Error(got)
	}
	r.fail(t, &streamerr.Error{Reason: streamerr.ClientGone})
	if got := string(load(t, r.log).AppendResponse(nil)); !strings.Contains(got, `"status":"cancelled"`) || !strings.Contains(got, `"text":"He"`) {
		t.Error(got)
	}
}

func TestALateRefusalIsAFailedResponse(t *testing.T) {
	r := newTape(t)
	r.fail(t, &streamerr.Error{Reason: streamerr.Invalid, Param: "input", Message: "too long"})
	if got, want := read(t, r.log, 0), r.sent.String(); got != want || !strings.HasPrefix(got, "event: response.created\n") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := string(load(t, r.log).AppendResponse(nil)); !strings.Contains(got, `"status":"failed"`) || !strings.Contains(got, `"message":"too long"`) {
		t.Error(got)
	}
}

// takenOver returns the log of an instance that has taken the stream over after the first n pieces,
// and the recorder that continues the log.
func (r *tape) takenOver(t *testing.T, n uint64) (*replay.Memory, *follow.Recorder) {
	t.Helper()
	in, err := r.log.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var known []replay.Event
	for after := range n {
		p, err := in.Read(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		first := "\xff" + strings.SplitN(p.Events[0].Data, "\xff", 3)[1]
		known = append(known, replay.Event{Seq: after + 1, Kind: replay.Delta, Data: first})
	}
	next := replay.NewMemory(replay.Limits{})
	t.Cleanup(func() { _ = next.Close() })
	w, err := next.Resume(r.head, replay.Seams{n}, known)
	if err != nil {
		t.Fatal(err)
	}
	return next, follow.NewRecorder(w, true, nil)
}

func record(t *testing.T, r *follow.Recorder, items ...*chatv1.GenerateResponse) {
	t.Helper()
	for _, out := range items {
		if _, err := r.Record(out); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAReaderAheadOfATakeoverIsCutOff: a reader reconnects with the number of an event that only
// the dead instance had.
func TestAReaderAheadOfATakeoverIsCutOff(t *testing.T) {
	r := newTape(t)
	all := items()
	r.add(t, started())
	r.add(t, all[:3]...)
	has := strings.Count(r.sent.String(), "\n\n")
	r.add(t, all[3:5]...)
	lost := strings.Count(r.sent.String(), "\n\n") - 1
	next, recorder := r.takenOver(t, 4)
	record(t, recorder, append(append([]*chatv1.GenerateResponse{started()}, all[3:]...), ended(llmv1.Finish_FINISH_STOP))...)
	for cursor, cut := range map[int]bool{has - 1: false, has: true, lost: true} {
		in, err := next.Open(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		reader, err := archive.New(in.Head(), int64(cursor)+1)
		if err != nil {
			t.Fatal(err)
		}
		lines := sse.Encoder{Identity: true}
		_, err = follow.Each(t.Context(), in, 0, func(e replay.Event) error { return reader.Play(e, &lines) })
		if encoded, _ := lines.Take(); (err != nil) != cut || cut && len(encoded) > 0 {
			t.Errorf("after event %d: %v, %q", cursor, err, encoded)
		}
	}
}

// TestEventsOfAnHeirHaveNewNumbers also covers an heir that continues an empty log, or adds only an
// ending.
func TestEventsOfAnHeirHaveNewNumbers(t *testing.T) {
	lost := &streamerr.Error{Reason: streamerr.PeerLost, Message: "died"}
	for name, c := range map[string]struct {
		known uint64
		items []*chatv1.GenerateResponse
		want  string // of the heir's first event
	}{
		"no start":           {4, nil, `"type":"error","sequence_number":1000000012,`},
		"a start":            {4, []*chatv1.GenerateResponse{started()}, `"type":"error","sequence_number":1000000012,`},
		"nothing known":      {0, []*chatv1.GenerateResponse{started()}, `"type":"response.created","sequence_number":1000000000,`},
		"nothing but an end": {0, nil, `"type":"response.created","sequence_number":1000000000,`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTape(t)
			r.add(t, started())
			r.add(t, items()[:3]...)
			before := ""
			if c.known > 0 {
				before = r.sent.String()
			}
			next, recorder := r.takenOver(t, c.known)
			record(t, recorder, c.items...)
			if err := recorder.Fail(lost); err != nil {
				t.Fatal(err)
			}
			rest, ok := strings.CutPrefix(read(t, next, 0), before)
			if !ok || !strings.Contains(strings.SplitN(rest, "\n\n", 2)[0], c.want) {
				t.Errorf("the heir's first event has no %s:\n%s", c.want, rest)
			}
		})
	}
}

// TestATakeoverKeepsTheNumbersOfEarlierEvents: the earlier instance has sent two events that no
// other instance has.
func TestATakeoverKeepsTheNumbersOfEarlierEvents(t *testing.T) {
	r := newTape(t)
	all := items()
	r.add(t, started())
	r.add(t, all[:3]...)
	before := r.sent.String()
	r.add(t, all[3:5]...)
	lost := strings.Count(r.sent.String(), "\n\n") - 1

	next, recorder := r.takenOver(t, 4)
	record(t, recorder, append(append([]*chatv1.GenerateResponse{started()}, all[3:]...), ended(llmv1.Finish_FINISH_STOP))...)
	n := strings.Count(before, "\n\n")
	got := read(t, next, 0)
	if rest, ok := strings.CutPrefix(got, before); ok {
		if want := fmt.Sprintf(`"sequence_number":%d,`, 1_000_000_000+n); !strings.Contains(strings.SplitN(rest, "\n\n", 2)[0], want) {
			t.Errorf("the first event after the takeover is not %s:\n%s", want, rest)
		}
		if after := read(t, next, int64(n)); after != rest {
			t.Errorf("after the last event of the earlier instance comes\n%s\nwant\n%s", after, rest)
		}
	} else {
		t.Errorf("got\n%s\nwant the beginning\n%s", got, before)
	}
	now := load(t, next)
	for number, want := range map[int64]bool{0: false, int64(n) - 1: false, int64(n): true, int64(lost): true, 1_000_000_000 + int64(n): false, 2_000_000_000: true} {
		if now.Lost(number) != want {
			t.Errorf("event %d: lost is %t", number, !want)
		}
	}
}

// A lame reader cannot read the rest of its log at the moment.
type lame struct{ replay.Reader }

func (l lame) Read(ctx context.Context, after uint64) (replay.Page, error) {
	if after > 0 {
		return replay.Page{Missed: &streamerr.Error{Reason: streamerr.Unavailable}}, nil
	}
	return l.Reader.Read(ctx, after)
}

func TestAResponseIsNotShownInPart(t *testing.T) {
	r := newTape(t)
	r.add(t, started(), delta(&chatv1.Delta{Text: "He"}))
	in, err := r.log.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if got, err := archive.Load(t.Context(), lame{in}); !errors.Is(err, streamerr.Unavailable) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAConversationContinuesAfterItsResponse(t *testing.T) {
	r := newTape(t)
	r.add(t, started())
	r.add(t, items()...)
	r.add(t, ended(llmv1.Finish_FINISH_TOOL_CALLS))
	conversation, err := load(t, r.log).Conversation()
	if err != nil {
		t.Fatal(err)
	}
	next, err := responses.Parser(false)([]byte(`{"model":"m","previous_response_id":"resp_s","instructions":"Be brief.","store":true,
		"input":[{"type":"function_call_output","call_id":"a","output":"Rain."},{"type":"function_call_output","call_id":"b","output":"Sun."}]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := next.Continue(conversation, nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range next.Request.GetMessages() {
		got = append(got, fmt.Sprintf("%s %q %q %d", m.GetRole(), m.GetReasoning(), m.GetContent(), len(m.GetToolCalls())))
	}
	want := []string{`system "" "Be brief." 0`, `user "" "Hi" 0`, "assistant \"Hm…\" \"\\nH\\\"ey <b>\\u2028\" 2", `tool "" "Rain." 0`, `tool "" "Sun." 0`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if name := next.Request.GetMessages()[2].GetToolCalls()[0].GetName(); name != "n__f" {
		t.Errorf("the model knows the function as %s", name)
	}
	if at := next.Param("messages[4].content"); at != "input[1]" {
		t.Errorf("an error of the last message names %s", at)
	}
	memo, err := responses.ParseMemo(next.Store.Memo(r.head.Began))
	if err != nil || len(memo.Input) != 1+4+2 {
		t.Errorf("the next response keeps %d items: %v", len(memo.Input), err)
	}
}

package follow_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func FuzzCursor(f *testing.F) {
	for _, text := range []string{"abc.7", "abc.0", ".7", "abc", "abc.", "abc.-1", "abc.07", "a.b.1", "abc.18446744073709551616", "abc.1\n", "\x00.1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := follow.ParseCursor(text)
		if err != nil {
			if !errors.Is(err, streamerr.Invalid) || streamerr.As(err).Param != follow.CursorHeader {
				t.Error(err)
			}
			return
		}
		if c.String() != text {
			t.Errorf("%q became %q", text, c)
		}
	})
}

func TestOnlyCursorsAreCursors(t *testing.T) {
	if c, err := follow.ParseCursor("abc.7"); err != nil || c != (follow.Cursor{Epoch: "abc", Seq: 7}) {
		t.Error(c, err)
	}
	for _, text := range []string{"", ".7", "abc", "abc.", "abc.-1", "abc.+1", "abc.07", "a.b.1", "abc.18446744073709551616", "abc.1 "} {
		if c, err := follow.ParseCursor(text); err == nil {
			t.Errorf("%q is %v", text, c)
		}
	}
}

func TestTokensAreForOneStreamAndSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := follow.NewKeyring("secret")
		of := func(k *follow.Keyring, id, epoch string) string { return k.Token(id, epoch, time.Now().Add(time.Hour)) }
		token := of(k, "s", "e")
		for _, c := range []struct {
			what, token string
			valid       bool
		}{
			{"its own", token, true},
			{"an instance with the same secret", of(follow.NewKeyring("secret"), "s", "e"), true},
			{"another secret", of(follow.NewKeyring("other"), "s", "e"), false},
			{"no secret", of(follow.NewKeyring(""), "s", "e"), false},
			{"another stream's", of(k, "t", "e"), false},
			{"another stream's of the same id", of(k, "s", "f"), false},
			{"another cut between id and epoch", of(k, "se", ""), false},
			{"half a token", token[:len(token)/2], false},
			{"garbage", "%%%", false},
			{"none", "", false},
		} {
			if valid, err := k.Check("s", "e", c.token); valid != c.valid || err != nil {
				t.Errorf("%s: %t, %v", c.what, valid, err)
			}
		}
		if valid, err := k.Check("s", "", of(k, "s", "")); valid || err != nil {
			t.Errorf("a stream that is not kept has a token: %t, %v", valid, err)
		}
		if !k.Known("s", token) || k.Known("t", token) || k.Known("s", "") {
			t.Error("a token is known for another stream")
		}
		time.Sleep(time.Hour)
		if valid, err := k.Check("s", "e", token); valid || reason(err) != streamerr.Unauthenticated || k.Known("s", token) {
			t.Errorf("an hour later: %t, %v", valid, err)
		}
		if valid, err := k.Check("s", "f", token); valid || err != nil {
			t.Errorf("an hour later, for another stream of the same id: %t, %v", valid, err)
		}
	})
}

func reason(err error) streamerr.Reason {
	if err == nil {
		return streamerr.Unspecified
	}
	return streamerr.As(err).Reason
}

func TestDigestsDoNotRunTogether(t *testing.T) {
	if follow.Digest("", "") != "" || follow.Digest("ab", "c") == follow.Digest("a", "bc") || follow.Digest("a") != follow.Digest("a") {
		t.Error("digests of different parts are equal, or the digest of no part is not empty")
	}
}

// record begins a stream in a log and returns its recorder.
func record(t *testing.T, l replay.Log, apart bool) *follow.Recorder {
	t.Helper()
	h, err := l.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := l.Writer(h.ID, h.Epoch)
	if err != nil {
		t.Fatal(err)
	}
	return follow.NewRecorder(w, apart, nil)
}

// events returns the events of the stream after a cursor.
func events(t *testing.T, l replay.Log, after uint64) []replay.Event {
	t.Helper()
	r := open(t, l, "s")
	defer r.Close()
	p, err := r.Read(t.Context(), after)
	if err != nil {
		t.Fatal(err)
	}
	return p.Events
}

func TestItemsBecomeEvents(t *testing.T) {
	l := replay.NewMemory(replay.Limits{})
	defer l.Close()
	r := record(t, l, false)
	if n, err := r.Record(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{}}}); n != 0 || err != nil || len(events(t, l, 0)) != 0 {
		t.Error("Started is an event:", n, err)
	}
	n, err := r.Record(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{
		Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"w", "a"}, Finish: llmv1.Finish_FINISH_LENGTH,
		Usage: &llmv1.Usage{PromptTokens: 3, CompletionTokens: 4},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	end := events(t, l, 0)
	if len(end) != 2 || end[0].Kind != replay.Usage || !strings.Contains(end[0].Data, `"total_tokens":7`) ||
		end[1] != (replay.Event{Seq: 2, Kind: replay.Ending, Data: `{"reason":"completed","finish":"length","path":["w","a"]}`}) || n != len(end[0].Data)+len(end[1].Data) {
		t.Errorf("%+v, %d bytes", end, n)
	}
}

// A page collects what a reader gets.
type page struct {
	text  strings.Builder
	ids   []string
	kinds []string
	left  int // number of writes until an error
}

var errGone = errors.New("gone")

func (p *page) write(id, kind string, data []byte) error {
	if p.left--; p.left < 0 {
		return errGone
	}
	p.ids, p.kinds = append(p.ids, id), append(p.kinds, kind)
	var d struct{ Text string }
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	p.text.WriteString(d.Text)
	return nil
}

func open(t *testing.T, l replay.Log, id string) replay.Reader {
	t.Helper()
	r, err := l.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReaderThatReconnectsGetsTheRestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := replay.NewMemory(replay.Limits{})
		defer l.Close()
		recorder := record(t, l, false)
		go func() {
			for range 50 {
				time.Sleep(time.Millisecond)
				_, _ = recorder.Record(item(&chatv1.Delta{Text: "<é>\n"}))
			}
			_ = l.Append("s", "e", replay.Event{Kind: replay.Usage, Data: "{}"}, replay.Event{Kind: replay.Ending, Data: "{}"})
		}()
		p := &page{}
		after := uint64(0)
		for {
			p.left = 7
			end, err := follow.Follow(t.Context(), open(t, l, "s"), after, p.write)
			after = end.After
			if end.Closed {
				break
			}
			if !errors.Is(err, errGone) || end.Events != 7 {
				t.Fatal(end, err)
			}
		}
		if p.text.String() != strings.Repeat("<é>\n", 50) || len(p.ids) != 52 || p.ids[0] != "e.1" || p.ids[51] != "e.52" || p.kinds[50] != "usage" || p.kinds[51] != "ending" {
			t.Error(p.text.String(), p.ids, p.kinds)
		}
	})
}

func TestReaderThatLagsGetsLargerEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := replay.NewMemory(replay.Limits{})
		defer l.Close()
		if _, err := l.Begin(t.Context(), replay.Head{ID: "s"}); err != nil {
			t.Fatal(err)
		}
		go func() {
			for range 1000 {
				time.Sleep(time.Millisecond)
				_ = l.Append("s", "", replay.Event{Kind: replay.Delta, Data: "x"})
			}
			_ = l.Append("s", "", replay.Event{Kind: replay.Ending, Data: "{}"})
		}()
		p := &page{left: 1000}
		end, err := follow.Follow(t.Context(), open(t, l, "s"), 0, func(id, kind string, data []byte) error {
			time.Sleep(100 * time.Millisecond)
			return p.write(id, kind, data)
		})
		if err != nil || !end.Closed || p.text.Len() != 1000 || end.Events > 13 {
			t.Error(end, err, p.text.Len())
		}
	})
}

func TestReaderThatLeavesEndsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := replay.NewMemory(replay.Limits{})
		defer l.Close()
		if _, err := l.Begin(t.Context(), replay.Head{ID: "s"}); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if end, err := follow.Follow(ctx, open(t, l, "s"), 0, (&page{}).write); err != nil || end.Closed {
			t.Error(end, err)
		}
	})
}

func TestReceiptIsJSON(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	got := string(follow.Receipt{ID: "s", Events: "/e", ExpiresAt: at, Token: "t", Resumable: true}.JSON())
	if want := `{"id":"s","events":"/e","expires_at":"2026-01-02T02:04:05Z","read_token":"t","resumable":true}`; got != want {
		t.Error(got)
	}
}

func TestPiecesOfSeveralChoicesNameTheirChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := replay.NewMemory(replay.Limits{})
		defer l.Close()
		recorder := record(t, l, true)
		said := func(out *chatv1.GenerateResponse) {
			if _, err := recorder.Record(out); err != nil {
				t.Fatal(err)
			}
		}
		delta := func(choice uint32, text string, likely ...*chatv1.TokenLogprob) *chatv1.GenerateResponse {
			return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Choice: choice, Text: text, Logprobs: likely}}}
		}
		said(delta(1, "a\xc3\xbf"))
		said(delta(0, "b", &chatv1.TokenLogprob{Token: "b", Logprob: -1}))
		said(delta(1, "c"))
		said(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_ChoiceEnd{ChoiceEnd: &chatv1.ChoiceEnd{Choice: 1, Finish: llmv1.Finish_FINISH_LENGTH}}})
		said(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"w"}}}})
		var got []string
		read := func(after uint64) {
			if _, err := follow.Follow(t.Context(), open(t, l, "s"), after, func(id, kind string, data []byte) error {
				got = append(got, id+" "+kind+" "+string(data))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		read(0)
		if len(got) != 3 || got[0] != `e.4 delta {"choices":[{"index":1,"text":"aÿc","finish":"length"},{"index":0,"text":"b","logprobs":[{"token":"b","logprob":-1,"bytes":null,"top_logprobs":[]}]}]}` ||
			got[2] != `e.6 ending {"reason":"completed","path":["w"]}` {
			t.Errorf("%q", got)
		}
		got = nil
		read(2)
		if got[0] != `e.4 delta {"choices":[{"index":1,"text":"c","finish":"length"}]}` {
			t.Errorf("%q", got)
		}
	})
}

func TestPartsOfAnswersAreJoined(t *testing.T) {
	l := replay.NewMemory(replay.Limits{})
	defer l.Close()
	recorder := record(t, l, false)
	for _, d := range []*chatv1.Delta{
		{Reasoning: "h"}, {Reasoning: "m", Text: "a\""}, {Text: "<é>\n"},
		{ToolCalls: []*chatv1.ToolCallDelta{{Id: "1", Name: "f", Arguments: "{"}}},
		{ToolCalls: []*chatv1.ToolCallDelta{{Arguments: "}"}, {Index: 1, Id: "2", Name: "g"}}}, {Text: "c"},
	} {
		if _, err := recorder.Record(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: d}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := recorder.Fail(&streamerr.Error{Reason: streamerr.PeerLost}); err != nil {
		t.Fatal(err)
	}
	var got []string
	if _, err := follow.Follow(t.Context(), open(t, l, "s"), 0, func(_, _ string, data []byte) error {
		got = append(got, string(data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := `{"text":"a\"<é>\nc","reasoning":"hm","calls":[{"index":0,"id":"1","name":"f","arguments":"{}"},{"index":1,"id":"2","name":"g","arguments":""}]}`
	if len(got) != 2 || got[0] != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestALogWithAMemoIsReadByAllReaders: readers of events also get the pieces of a stored answer,
// with its model and time.
func TestALogWithAMemoIsReadByAllReaders(t *testing.T) {
	l := replay.NewMemory(replay.Limits{})
	defer l.Close()
	w, err := l.Add(replay.Head{ID: "s", Epoch: "e", Memo: "m"})
	if err != nil {
		t.Fatal(err)
	}
	recorder := follow.NewRecorder(w, false, func() time.Time { return time.Unix(7, 0) })
	begin := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{Model: "m"}}}
	end := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"w"}}}}
	for _, out := range []*chatv1.GenerateResponse{begin, begin, item(&chatv1.Delta{Text: "a"}), item(&chatv1.Delta{Text: "b"}), end} {
		if _, err := recorder.Record(out); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	if _, err := follow.Follow(t.Context(), open(t, l, "s"), 0, func(id, _ string, data []byte) error {
		got = append(got, id+" "+string(data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0] != `e.3 {"choices":[{"index":0,"text":"ab","model":"m"}]}` || got[2] != `e.5 {"reason":"completed","path":["w"],"ended_at":7}` {
		t.Errorf("%q", got)
	}
	for _, e := range []replay.Event{{Kind: replay.Delta, Data: "text"}, {Kind: replay.Delta, Data: "\xff{"}, {Kind: replay.Ending, Data: "{"}, {Kind: replay.Failure, Data: "{}"}, {Kind: "other"}} {
		if err := new(follow.Decoder).Decode(e, follow.Visitor{}); err == nil {
			t.Errorf("%+v was decoded", e)
		}
	}
}

package codec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func tokens(ids ...uint32) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: ids}}}
}

func delta(d *chatv1.Delta) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: d}}
}

func end() *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{Tokens: 1, Path: []string{"a"}}}}
}

var tokenMessages = []*workerv1.GenerateResponse{
	tokens(1), tokens(1, 2, 1<<32-1), tokens(), {},
	{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{7}, CachedTokens: proto.Uint32(0)}}},
	{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{0}, Written: &workerv1.Written{Text: "a"}}}},
	{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{7}, Logprobs: []float32{-1}, TopIds: []uint32{7}, TopLogprobs: []float32{-1}}}},
	{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{StreamId: "s"}}},
	{Message: &workerv1.GenerateResponse_Handover{Handover: &workerv1.Handover{Parameters: []byte("x")}}},
}

var deltaMessages = []*chatv1.GenerateResponse{
	delta(&chatv1.Delta{Text: " token", Tokens: 1}), delta(&chatv1.Delta{Text: "안녕", Tokens: 3, Choice: 300, Ids: []uint32{5, 70000, 9}}),
	delta(&chatv1.Delta{Reasoning: "hm", Tokens: 1}), delta(&chatv1.Delta{Text: "a", Reasoning: "b", Tokens: 2}), delta(&chatv1.Delta{}),
	delta(&chatv1.Delta{Text: "rest", Tokens: 1, Remainder: true}), delta(&chatv1.Delta{Text: "first", Tokens: 1, CachedTokens: new(uint32(0))}), delta(&chatv1.Delta{Ids: []uint32{1}}),
	delta(&chatv1.Delta{Text: "x", Logprobs: []*chatv1.TokenLogprob{{Token: "x", Logprob: -1}}}),
	delta(&chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Id: "c", Name: "f"}}}), delta(&chatv1.Delta{Text: strings.Repeat("long", 1000), Tokens: 9}),
	end(), {},
}

// decodes checks that a decoder and package proto decode b alike.
func decodes[Out any, M interface {
	*Out
	proto.Message
}](t *testing.T, d decoder[Out], b []byte) {
	t.Helper()
	want := M(new(Out))
	wanted := proto.Unmarshal(b, want)
	err := proto.Unmarshal(b, d)
	if (err == nil) != (wanted == nil) {
		t.Fatalf("%x: %v, want %v", b, err, wanted)
	}
	if err != nil {
		return
	}
	got := M(d.take())
	if got == nil || !proto.Equal(got, want) || proto.Size(got) != proto.Size(want) {
		t.Fatalf("%x is %v, want %v", b, got, want)
	}
	if again := d.take(); again != nil {
		t.Fatalf("%x decodes to two messages", b)
	}
}

// encodes checks that an encoder and package proto encode m alike.
func encodes[Out any, M interface {
	*Out
	proto.Message
}](t *testing.T, e encoder[Out], m M) {
	t.Helper()
	want, err := proto.Marshal(m)
	if !e.hold((*Out)(m)) {
		return
	}
	size := proto.Size(e)
	got, gotErr := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend([]byte("before"), e)
	if err != nil || gotErr != nil || !bytes.Equal(got, append([]byte("before"), want...)) || size != len(want) {
		t.Fatalf("%v is %x of %d bytes, want %x: %v, %v", m, got, size, want, gotErr, err)
	}
	if same := proto.Clone(e); !proto.Equal(same, m) { // calls within the process clone messages
		t.Fatalf("%v becomes %v", m, same)
	}
}

func FuzzTokens(f *testing.F) {
	for _, m := range tokenMessages {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x12, 2, 0x08, 5})                                     // not packed
	f.Add([]byte{0x12, 3, 0x0a, 1, 5, 0x12, 3, 0x0a, 1, 6})             // in two parts
	f.Add([]byte{0x12, 8, 0x0a, 6, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}) // longer than 32 bits
	f.Add([]byte{0x12, 4, 0x0a, 2, 5, 0x80})                            // truncated
	f.Add([]byte{0x12, 0x83, 0, 0x0a, 1, 5})                            // a longer length prefix than necessary
	f.Add([]byte{0x12, 6, 0x0a, 1, 5, 0xf8, 0x01, 1})                   // a field of a later version
	f.Fuzz(func(t *testing.T, b []byte) {
		decodes(t, newTokensDecoder(), b)
		var m workerv1.GenerateResponse
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		encodes(t, &tokensEncoder{}, &m)
		d := newTokensDecoder() // after another message
		if !d.add([]byte{0x12, 3, 0x0a, 1, 5}) {
			t.Fatal("one token is not decoded")
		}
		if err := d.decode(b); err != nil {
			t.Fatal(err)
		}
		first, second := d.take(), d.take()
		if second == nil {
			if want := tokens(append([]uint32{5}, m.GetTokens().GetIds()...)...); !proto.Equal(first, want) {
				t.Fatalf("%x merges to %v, want %v", b, first, want)
			}
		} else if !proto.Equal(first, tokens(5)) || !proto.Equal(second, &m) {
			t.Fatalf("%x: %v, %v", b, first, second)
		}
	})
}

func FuzzDelta(f *testing.F) {
	for _, m := range deltaMessages {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x12, 3, 0x0a, 1, 0xff})                       // not UTF-8
	f.Add([]byte{0x12, 6, 0x0a, 1, 'a', 0x0a, 1, 'b'})          // two texts: the last one wins
	f.Add([]byte{0x12, 4, 0x10, 1, 0x10, 2})                    // two numbers
	f.Add([]byte{0x12, 6, 0x62, 1, 5, 0x62, 1, 6})              // ids in two parts
	f.Add([]byte{0x12, 3, 0x0a, 1, 'a', 0x12, 3, 0x0a, 1, 'b'}) // the delta in two parts
	f.Add([]byte{0x12, 2, 0x0a, 9})                             // truncated
	f.Fuzz(func(t *testing.T, b []byte) {
		decodes(t, newDeltaDecoder(), b)
		var m chatv1.GenerateResponse
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		encodes(t, &deltaEncoder{}, &m)
		d := newDeltaDecoder() // after another message
		before := &chatv1.Delta{Text: "before", Tokens: 1, Ids: []uint32{3}}
		if other, err := proto.Marshal(delta(before)); err != nil || d.decode(other) != nil || d.decode(b) != nil {
			t.Fatal(err)
		}
		first, second := d.take(), d.take()
		if second == nil {
			want := delta(&chatv1.Delta{
				Text: "before" + m.GetDelta().GetText(), Tokens: 1 + m.GetDelta().GetTokens(), Ids: append([]uint32{3}, m.GetDelta().GetIds()...),
			})
			if !proto.Equal(first, want) {
				t.Fatalf("%x merges to %v, want %v", b, first, want)
			}
		} else if !proto.Equal(first, delta(before)) || !proto.Equal(second, &m) {
			t.Fatalf("%x: %v, %v", b, first, second)
		}
	})
}

// A recording is a call with recorded messages, in groups of messages that have arrived together.
type recording struct {
	grpc.ClientStream
	groups [][][]byte
	err    error // after the messages
	loop   bool  // the first group is repeated
	sent   int
	buf    []byte
}

func record[M proto.Message](t testing.TB, groups ...[]M) *recording {
	t.Helper()
	r := &recording{err: io.EOF}
	for _, group := range groups {
		var all [][]byte
		for _, m := range group {
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
		r.groups = append(r.groups, all)
	}
	return r
}

func (r *recording) More() bool {
	return len(r.groups) > 0 && r.sent < len(r.groups[0]) || len(r.groups) == 0
}

func (r *recording) RecvMsg(m any) error {
	if len(r.groups) > 0 && r.sent == len(r.groups[0]) {
		r.sent = 0
		if !r.loop {
			r.groups = r.groups[1:]
		}
	}
	if len(r.groups) == 0 {
		return r.err
	}
	r.buf = append(r.buf[:0], r.groups[0][r.sent]...) // a transport reuses its buffer
	r.sent++
	msg, ok := m.(proto.Message)
	if !ok {
		return errors.New("no message")
	}
	return proto.Unmarshal(r.buf, msg)
}

func (r *recording) SendMsg(m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return errors.New("no message")
	}
	r.sent = proto.Size(msg)
	var err error
	r.buf, err = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(r.buf[:0], msg)
	return err
}

func deltas(t testing.TB, r *recording) grpc.BidiStreamingClient[chatv1.GenerateRequest, chatv1.GenerateResponse] {
	t.Helper()
	st, err := Deltas(func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[chatv1.GenerateRequest, chatv1.GenerateResponse], error) {
		return &grpc.GenericClientStream[chatv1.GenerateRequest, chatv1.GenerateResponse]{ClientStream: r}, nil
	})(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func tokenStream(t testing.TB, r *recording) grpc.BidiStreamingClient[workerv1.GenerateRequest, workerv1.GenerateResponse] {
	t.Helper()
	st, err := Tokens(func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[workerv1.GenerateRequest, workerv1.GenerateResponse], error) {
		return &grpc.GenericClientStream[workerv1.GenerateRequest, workerv1.GenerateResponse]{ClientStream: r}, nil
	})(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// received returns the messages of Recv until its first error, one line each.
func received[In, Out any, M interface {
	*Out
	fmt.Stringer
}](st grpc.BidiStreamingClient[In, Out], show func(*Out) string) (lines []string) {
	for {
		m, err := st.Recv()
		if err != nil {
			return append(lines, err.Error())
		}
		lines = append(lines, show(m))
	}
}

// TestMessagesThatArriveTogetherAreMerged checks which messages are merged, and that the others
// stay as they are.
func TestMessagesThatArriveTogetherAreMerged(t *testing.T) {
	text := func(s string, choice uint32) *chatv1.GenerateResponse {
		return delta(&chatv1.Delta{Text: s, Tokens: 1, Choice: choice, Ids: []uint32{uint32(len(s))}})
	}
	thought := delta(&chatv1.Delta{Reasoning: "hm", Tokens: 1})
	likely := delta(&chatv1.Delta{Text: "L", Tokens: 1, Logprobs: []*chatv1.TokenLogprob{{Token: "L"}}})
	r := record(t,
		[]*chatv1.GenerateResponse{{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{}}}, text("a", 0), text("bb", 0), text("c", 1), text("d", 1), thought, thought, thought},
		[]*chatv1.GenerateResponse{text("alone", 0)},
		[]*chatv1.GenerateResponse{text("e", 0), likely, likely, text("f", 0), text("g", 0), end()},
	)
	got := received(deltas(t, r), func(m *chatv1.GenerateResponse) string {
		if d := m.GetDelta(); d != nil {
			return fmt.Sprintf("%d: %s%s %d %v", d.GetChoice(), d.GetText(), d.GetReasoning(), d.GetTokens(), d.GetIds())
		}
		return fmt.Sprintf("%T", m.GetMessage())
	})
	want := []string{
		"*chatv1.GenerateResponse_Started", "0: abb 2 [1 2]", "1: c 1 [1]", "1: d 1 [1]", "0: hm 1 []", "0: hmhm 2 []", "0: alone 1 [5]",
		"0: e 1 [1]", "0: L 1 []", "0: L 1 []", "0: fg 2 [1 1]", "*chatv1.GenerateResponse_End", "EOF",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestMergedMessagesAreBounded checks that a message has few tokens, however many have arrived.
func TestMergedMessagesAreBounded(t *testing.T) {
	var all []*workerv1.GenerateResponse
	for i := range 3*maxMerged + 5 {
		all = append(all, tokens(uint32(i)))
	}
	st := tokenStream(t, record(t, all))
	next := uint32(0)
	for {
		m, err := st.Recv()
		if err != nil {
			break
		}
		ids := m.GetTokens().GetIds()
		if len(ids) == 0 || len(ids) > maxMerged {
			t.Errorf("a message has %d tokens", len(ids))
		}
		for _, id := range ids {
			if id != next {
				t.Fatalf("token %d, want %d", id, next)
			}
			next++
		}
	}
	if next != uint32(len(all)) {
		t.Errorf("%d tokens", next)
	}
}

// TestErrorFollowsTheTokensBeforeIt: and the call continues after an error of one message.
func TestErrorFollowsTheTokensBeforeIt(t *testing.T) {
	r := record(t, []*workerv1.GenerateResponse{tokens(1), tokens(2), tokens(3), tokens(4)})
	r.groups[0][2] = []byte{0xff}
	got := received(tokenStream(t, r), func(m *workerv1.GenerateResponse) string { return fmt.Sprint(m.GetTokens().GetIds()) })
	if len(got) != 2 || got[0] != "[1 2]" || got[1] == "EOF" {
		t.Errorf("%q", got)
	}
}

// TestTextsRemainValid checks the strings of messages after further messages.
func TestTextsRemainValid(t *testing.T) {
	var groups [][]*chatv1.GenerateResponse
	for i := range 500 {
		groups = append(groups, []*chatv1.GenerateResponse{delta(&chatv1.Delta{Text: fmt.Sprintf("%d ", i)}), delta(&chatv1.Delta{Text: fmt.Sprintf("and %d", i)})})
	}
	st := deltas(t, record(t, groups...))
	var all []string
	for {
		m, err := st.Recv()
		if err != nil {
			break
		}
		all = append(all, m.GetDelta().GetText())
	}
	for i, text := range all {
		if want := fmt.Sprintf("%d and %d", i, i); text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
	if len(all) != len(groups) {
		t.Errorf("%d messages", len(all))
	}
}

// TestTransportThatCannotPeekIsLeftAlone: its calls are returned unchanged.
func TestTransportThatCannotPeekIsLeftAlone(t *testing.T) {
	plain := &grpc.GenericClientStream[chatv1.GenerateRequest, chatv1.GenerateResponse]{}
	st, err := Deltas(func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[chatv1.GenerateRequest, chatv1.GenerateResponse], error) {
		return plain, nil
	})(t.Context())
	if err != nil || st != grpc.BidiStreamingClient[chatv1.GenerateRequest, chatv1.GenerateResponse](plain) {
		t.Error(st, err)
	}
}

// BenchmarkReceive measures decoding a message, and BenchmarkSend encoding a message.
func BenchmarkReceive(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprintf("tokens/%d", n), func(b *testing.B) {
			r := record(b, sized(n, tokens(70000)))
			r.loop = true
			st := tokenStream(b, r)
			b.ReportAllocs()
			for left := b.N; left > 0; {
				m, err := st.Recv()
				if err != nil {
					b.Fatal(err)
				}
				left -= len(m.GetTokens().GetIds())
			}
		})
		b.Run(fmt.Sprintf("delta/%d", n), func(b *testing.B) {
			r := record(b, sized(n, delta(&chatv1.Delta{Text: " token", Tokens: 1})))
			r.loop = true
			st := deltas(b, r)
			b.ReportAllocs()
			for left := b.N; left > 0; {
				m, err := st.Recv()
				if err != nil {
					b.Fatal(err)
				}
				left -= int(m.GetDelta().GetTokens())
			}
		})
	}
}

func sized[M any](n int, m M) (all []M) {
	for range n {
		all = append(all, m)
	}
	return all
}

// A sink discards the messages that a callee sends.
type sink struct {
	grpc.ServerStream
	recording
}

func (s *sink) SendMsg(m any) error { return s.recording.SendMsg(m) }
func (s *sink) RecvMsg(any) error   { return io.EOF }

func BenchmarkSend(b *testing.B) {
	b.Run("tokens", func(b *testing.B) {
		st := SendTokens(&grpc.GenericServerStream[workerv1.GenerateRequest, workerv1.GenerateResponse]{ServerStream: &sink{}})
		m := tokens(70000)
		b.ReportAllocs()
		for b.Loop() {
			if err := st.Send(m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("delta", func(b *testing.B) {
		st := SendDeltas(&grpc.GenericServerStream[chatv1.GenerateRequest, chatv1.GenerateResponse]{ServerStream: &sink{}})
		m := delta(&chatv1.Delta{Text: " token", Tokens: 1})
		b.ReportAllocs()
		for b.Loop() {
			if err := st.Send(m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestTokensAllocateNothing checks both ends of a call.
func TestTokensAllocateNothing(t *testing.T) {
	r := record(t, []*chatv1.GenerateResponse{delta(&chatv1.Delta{Text: " token", Tokens: 1})})
	r.loop = true
	in := deltas(t, r)
	w := record(t, []*workerv1.GenerateResponse{tokens(70000)})
	w.loop = true
	ids := tokenStream(t, w)
	out := SendDeltas(&grpc.GenericServerStream[chatv1.GenerateRequest, chatv1.GenerateResponse]{ServerStream: &sink{}})
	up := SendTokens(&grpc.GenericServerStream[workerv1.GenerateRequest, workerv1.GenerateResponse]{ServerStream: &sink{}})
	text, token := delta(&chatv1.Delta{Text: " token", Tokens: 1}), tokens(70000)
	for name, f := range map[string]func() error{
		"receive a delta": func() error { _, err := in.Recv(); return err },
		"receive a token": func() error { _, err := ids.Recv(); return err },
		"send a delta":    func() error { return out.Send(text) },
		"send a token":    func() error { return up.Send(token) },
	} {
		if n := testing.AllocsPerRun(1000, func() {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 { // texts share allocations, and AllocsPerRun rounds down
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

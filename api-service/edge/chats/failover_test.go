package chats

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// runs waits until the stream has delivered more text than it has now.
func (l *live) runs(t *testing.T) *live {
	t.Helper()
	before := len(l.said())
	polltest.Eventually(t, "it goes on", func() bool { return len(l.said()) > before+5 })
	return l
}

// counts checks that an ended stream has counted without a gap and without a repetition.
func (l *live) counts(t *testing.T) {
	t.Helper()
	polltest.Receive(t, "the stream ends", l.over)
	if l.err != nil {
		t.Fatal(l.err)
	}
	var text, thought, called strings.Builder
	for n := range l.sum {
		fmt.Fprintf(&text, "%d ", n)
		fmt.Fprintf(&thought, "(%d)", n)
		if n%10 == 0 {
			called.WriteString("count:")
		}
		fmt.Fprintf(&called, "%d ", n)
	}
	if l.sum == 0 || l.text != text.String() || l.thought != thought.String() || l.called != called.String() {
		t.Errorf("%d tokens: %q, %q, %q", l.sum, l.text, l.thought, l.called)
	}
}

func TestStreamMovesToAnotherChatService(t *testing.T) {
	for name, strike := range map[string]func(*service){
		"its chat-service is lost":   func(s *service) { s.grpc.Stop() },
		"its chat-service has to go": func(s *service) { close(s.drain) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
			f := still(t, a, b)
			b.refuse.Store(streamerr.New(streamerr.Unavailable, "not yet"))
			var all []*live
			for range 4 {
				all = append(all, open(t, f).started(t).runs(t))
			}
			b.refuse.Store(streamerr.InvalidParam("stream_id", "a worker still has it"))
			strike(a)
			polltest.Eventually(t, "it is asked, and asked again", func() bool { return b.asked.Load() > 10 })
			b.refuse.Store(nil)
			for _, l := range all {
				if len(l.runs(t).moves(t)) != 1 {
					t.Error(l.moves(t))
				}
			}
			close(b.finish)
			for _, l := range all {
				l.counts(t)
			}
		})
	}
}

func TestStreamResumesOnTheSameChatService(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	b.grpc.Stop()
	f := still(t, a, b)
	l := open(t, f).started(t)
	for range maxMoves {
		l.runs(t)
		a.grpc.Stop()
		a = serve(t, "chat-service/0", a.addr)
	}
	l.runs(t)
	close(a.finish)
	l.counts(t)
	if len(l.moves(t)) != maxMoves {
		t.Error(l.moves(t))
	}
}

func TestStreamEndsWithTheFirstLossIfNoChatServiceResumesIt(t *testing.T) {
	for name, c := range map[string]struct {
		asked   *chatv1.ChatRequest
		refusal *streamerr.Error
	}{
		"the request is refused there":    {&chatv1.ChatRequest{}, streamerr.InvalidParam("generated", "not here")},
		"there is no room for it in time": {&chatv1.ChatRequest{}, streamerr.New(streamerr.Overloaded, "full")},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
			f := still(t, a, b)
			f.within = 100 * time.Millisecond
			b.refuse.Store(streamerr.New(streamerr.Unavailable, "not yet"))
			l := ask(t, f, c.asked).started(t).runs(t)
			b.refuse.Store(c.refusal)
			close(a.drain)
			<-l.over
			if e := streamerr.As(l.err); e.Reason != streamerr.Draining || e.Path.Origin() != "chat-service/0" {
				t.Error(e)
			}
			if !strings.HasSuffix(l.text, " <") || len(l.moves(t)) > 0 {
				t.Errorf("%q, moved %v", l.text, l.moves(t))
			}
		})
	}
}

func TestLostStreamOfAWorkerStaysLost(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	f := still(t, a, b)
	b.refuse.Store(streamerr.New(streamerr.Unavailable, "not yet"))
	l := open(t, f).started(t).runs(t)
	b.refuse.Store(nil)
	a.fail.Store(&streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath("llm-worker/0"), Message: "gone"})
	<-l.over
	if e := streamerr.As(l.err); e.Reason != streamerr.PeerLost || e.Path.Origin() != "llm-worker/0" {
		t.Error(e)
	}
}

// moves returns the moves in the stream's record.
func (l *live) moves(t *testing.T) []*streamv1.Move {
	t.Helper()
	moves := l.record.Proto().GetMoves()
	for _, m := range moves {
		if m.GetFrom() == "" || m.GetTo() == "" || m.GetTokens() == 0 || m.GetReason() == streamv1.Reason_REASON_UNSPECIFIED {
			t.Error(m)
		}
	}
	return moves
}

func TestRepeatedRemainderIsNotDeliveredTwice(t *testing.T) {
	for again, want := range map[string]string{"": "abc", "a": "abc", "abc": "abcd", "ab": "abc"} {
		a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
		f, said := still(t, a, b), ""
		c := newFailover(t.Context(), f, &chatv1.ChatRequest{}, streamtest.Record(t, func(_ *stream.Loop, out *chatv1.GenerateResponse, _ int) bool {
			said += out.GetDelta().GetText()
			return true
		}))
		started := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{}}}
		gone := streamerr.New(streamerr.Draining, "it goes")
		first, second := f.all()[0], f.all()[1]
		deliver := func(from *peer, out *chatv1.GenerateResponse) {
			c.deliver(nil, from, out)
			proto.Reset(out) // its memory serves other streams
		}
		c.deliver(nil, first, started)
		deliver(first, delta(&chatv1.Delta{Text: "abc", Ids: []uint32{1, 2, 3}}))
		deliver(first, delta(&chatv1.Delta{Text: "d", Remainder: true}))
		c.failed = gone
		c.lost(t.Context(), first)
		c.deliver(nil, second, started)
		deliver(second, delta(&chatv1.Delta{Text: again}))
		deliver(second, delta(&chatv1.Delta{Text: "abcd"[len(again) : len(again)+1], Remainder: true}))
		c.failed = gone
		c.lost(t.Context(), second)
		if c.finish(); said != want {
			t.Errorf("%q was repeated: %q, want %q", again, said, want)
		}
	}
}

// A choice is what the reader has received of one choice.
type choice struct {
	text   string
	tokens uint32
	likely []float32
	ends   int
}

// readChoices reads a stream until it ends. It calls each after each delta.
func readChoices(t *testing.T, f *Fleet, req *chatv1.ChatRequest, each func(all []choice)) (all []choice, record *streamv1.Record) {
	t.Helper()
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	req.StreamId = stream.NewID()
	kept := records.Open(req.GetStreamId(), "api", "client")
	all = make([]choice, several(req))
	for out, err := range Engine(f.Start).Range(ledger.With(ctx, kept), req) {
		if err != nil {
			t.Fatal(err)
		}
		if end := out.GetChoiceEnd(); end != nil {
			all[end.GetChoice()].ends++
		}
		if d := out.GetDelta(); d != nil {
			c := &all[d.GetChoice()]
			c.text += d.GetText()
			c.tokens += d.GetTokens()
			for _, p := range d.GetLogprobs() {
				c.likely = append(c.likely, p.GetLogprob())
			}
			each(all)
		}
	}
	return all, kept.Proto()
}

// counts checks that a choice has counted without a gap and without a repetition.
func (c choice) counts(t *testing.T, logprobs bool) {
	t.Helper()
	var text strings.Builder
	for n := range c.tokens {
		fmt.Fprintf(&text, "%d ", n)
		if logprobs && (int(n) >= len(c.likely) || c.likely[n] != -float32(n)) {
			t.Fatalf("log-probabilities %v of %d tokens", c.likely, c.tokens)
		}
	}
	if c.tokens == 0 || c.text != text.String() || logprobs && len(c.likely) != int(c.tokens) {
		t.Errorf("%d tokens, %d log-probabilities: %q", c.tokens, len(c.likely), c.text)
	}
}

func TestChoicesAndLogprobsMoveToAnotherChatService(t *testing.T) {
	likely := &llmv1.Sampling{Logprobs: proto.Uint32(0)}
	for name, req := range map[string]*chatv1.ChatRequest{
		"three answers":               {N: 3},
		"answers to two prompts":      {Prompts: []*chatv1.Prompt{{}, {}}},
		"logprobs":                    {Sampling: likely},
		"three answers with logprobs": {N: 3, Sampling: likely},
		"a gathered answer":           {N: 2, Sampling: likely, Gathered: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
			f := still(t, a, b)
			b.refuse.Store(streamerr.New(streamerr.Unavailable, "not yet"))
			last := several(req) - 1
			all, record := readChoices(t, f, req, func(all []choice) {
				switch all[last].tokens {
				case 20:
					b.refuse.Store(nil)
					a.grpc.Stop()
				case 100:
					select {
					case <-b.finish:
					default:
						close(b.finish)
					}
				}
			})
			for i, c := range all {
				c.counts(t, req.GetSampling() != nil)
				if several(req) > 1 && c.ends != 1 {
					t.Errorf("choice %d has ended %d times", i, c.ends)
				}
			}
			if all[last].tokens < 100 || several(req) > 1 && all[0].tokens != 3 {
				t.Error(all)
			}
			if moves := record.GetMoves(); len(moves) != 1 || moves[0].GetReason() != streamv1.Reason_REASON_PEER_LOST || moves[0].GetTokens() < 20 {
				t.Error(moves)
			}
		})
	}
}

// TestOlderChatServiceGetsRequestsWithoutTellIDs covers an upgrade in which api-service is upgraded first.
func TestOlderChatServiceGetsRequestsWithoutTellIDs(t *testing.T) {
	a := serve(t, "chat-service/0", "127.0.0.1:0")
	b := serve(t, "chat-service/1", "127.0.0.1:0")
	a.old.Store(true)
	b.old.Store(true)
	all, record := readChoices(t, still(t, a, b), &chatv1.ChatRequest{N: 2}, func(all []choice) {
		if all[1].tokens == 20 {
			close(a.finish)
			close(b.finish)
		}
	})
	for _, c := range all {
		c.counts(t, false)
	}
	if len(record.GetMoves()) != 0 {
		t.Error(record.GetMoves())
	}
}

func TestRestartedAnswerIsResumedFromTheRestart(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	f, said := still(t, a, b), ""
	c := newFailover(t.Context(), f, &chatv1.ChatRequest{Gathered: true}, streamtest.Record(t, func(_ *stream.Loop, out *chatv1.GenerateResponse, _ int) bool {
		if out.GetRestarted() != nil {
			said = ""
		}
		said += out.GetDelta().GetText()
		return true
	}))
	started := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{}}}
	restarted := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Restarted{Restarted: &chatv1.Restarted{}}}
	first, second := f.all()[0], f.all()[1]
	c.deliver(nil, first, started)
	c.deliver(nil, first, delta(&chatv1.Delta{Text: "lost", Ids: []uint32{1, 2, 3}}))
	c.deliver(nil, first, restarted)
	c.deliver(nil, first, delta(&chatv1.Delta{Text: "a", Ids: []uint32{4}}))
	c.failed = streamerr.New(streamerr.Draining, "it goes")
	c.lost(t.Context(), first)
	if ids := c.request().GetAnswered().GetIds(); len(ids) != 1 || ids[0] != 4 {
		t.Error(ids)
	}
	c.deliver(nil, second, started)
	c.deliver(nil, second, delta(&chatv1.Delta{Text: "a", Ids: []uint32{4}}))
	c.deliver(nil, second, delta(&chatv1.Delta{Text: "b", Ids: []uint32{5}}))
	if said != "ab" {
		t.Errorf("%q", said)
	}
}

// TestChatServiceOfAnEarlierReleaseGetsNoRequestThatItWouldMisread: it ignores continue_message, and would
// begin a new turn.
func TestChatServiceOfAnEarlierReleaseGetsNoRequestThatItWouldMisread(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	f := still(t, a, b)
	a.ignores.Store(true)
	for range 4 {
		l := ask(t, f, &chatv1.ChatRequest{Model: "short", ContinueMessage: true}).started(t)
		polltest.Receive(t, "the stream ends", l.over)
		if l.err != nil || l.text != "0 1 2 " {
			t.Errorf("%q, %v", l.text, l.err)
		}
	}
	b.ignores.Store(true)
	l := ask(t, f, &chatv1.ChatRequest{ContinueMessage: true})
	polltest.Receive(t, "the stream is refused", l.over)
	if e := streamerr.As(l.err); e.Reason != streamerr.Unavailable || !strings.Contains(e.Text(), "of an earlier release, which does not know continue_message") {
		t.Error(l.err)
	}
	polltest.Eventually(t, "the chat-services have stopped", func() bool { return a.live.Load()+b.live.Load() == 0 })
	ask(t, f, &chatv1.ChatRequest{Model: "short"}).counts(t) // others are served
}

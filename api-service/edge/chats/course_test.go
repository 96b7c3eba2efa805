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
	"github.com/whence-dev/whence/pkg/streamerr"
)

// runs waits until a stream has said more than it has by now.
func (l *live) runs(t *testing.T) *live {
	t.Helper()
	before := len(l.said())
	eventually(t, "it goes on", func() bool { return len(l.said()) > before+5 })
	return l
}

// counts checks that a stream that is over has counted without a gap, and nothing twice.
func (l *live) counts(t *testing.T) {
	t.Helper()
	select {
	case <-l.over:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
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

func TestStreamGoesOnElsewhere(t *testing.T) {
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
			eventually(t, "it is asked, and asked again", func() bool { return b.asked.Load() > 10 })
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

func TestStreamGoesOnWhereItWas(t *testing.T) {
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

func TestStreamEndsAsItsChatServiceDidWhereNobodyGoesOn(t *testing.T) {
	likely := &chatv1.ChatRequest{Sampling: &llmv1.Sampling{Logprobs: proto.Uint32(0)}}
	for name, c := range map[string]struct {
		asked   *chatv1.ChatRequest
		refusal *streamerr.Error
	}{
		"the request is refused there":      {&chatv1.ChatRequest{}, streamerr.InvalidParam("generated", "not here")},
		"there is no room for it in time":   {&chatv1.ChatRequest{}, streamerr.New(streamerr.Overloaded, "full")},
		"it is two answers":                 {&chatv1.ChatRequest{N: 2}, nil},
		"it is the answers to two prompts":  {&chatv1.ChatRequest{Prompts: []*chatv1.Prompt{{}, {}}}, nil},
		"its tokens are told with logprobs": {likely, nil},
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

func TestStopReachesAStreamThatNobodyHas(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	f := still(t, a, b)
	b.refuse.Store(streamerr.New(streamerr.Unavailable, "not yet"))
	l := open(t, f).started(t).runs(t)
	a.grpc.Stop()
	asked := b.asked.Load()
	eventually(t, "it looks for another", func() bool { return b.asked.Load() > asked+3 })
	l.stop(streamerr.New(streamerr.ClientGone, "left"))
	<-l.over
	if e := streamerr.As(l.err); e.Reason != streamerr.ClientGone {
		t.Error(e)
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

// moves are those of its record.
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

func TestRemainderOfWhatIsToldAgainIsNotDeliveredTwice(t *testing.T) {
	for again, want := range map[string]string{"": "abc", "a": "abc", "abc": "abcd", "ab": "abc"} {
		a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
		f, said := still(t, a, b), ""
		c := newCourse(f, &chatv1.ChatRequest{}, func(out *chatv1.GenerateResponse, _ error) bool {
			said += out.GetDelta().GetText()
			return true
		})
		started := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{}}}
		gone := streamerr.New(streamerr.Draining, "it goes")
		first, second := f.all()[0], f.all()[1]
		c.deliver(t.Context(), first, started)
		c.deliver(t.Context(), first, delta(&chatv1.Delta{Text: "abc", Ids: []uint32{1, 2, 3}}))
		c.deliver(t.Context(), first, delta(&chatv1.Delta{Text: "d", Remainder: true}))
		c.lost(t.Context(), first, gone)
		c.deliver(t.Context(), second, started)
		c.deliver(t.Context(), second, delta(&chatv1.Delta{Text: again}))
		c.deliver(t.Context(), second, delta(&chatv1.Delta{Text: "abcd"[len(again) : len(again)+1], Remainder: true}))
		c.lost(t.Context(), second, gone)
		if c.end(); said != want {
			t.Errorf("%q was told again: %q, want %q", again, said, want)
		}
	}
}

func TestGatheredAnswerThatCannotBeResumedIsStartedAnew(t *testing.T) {
	for name, req := range map[string]*chatv1.ChatRequest{
		"of several answers": {N: 2, Gathered: true},
		"with logprobs":      {Sampling: &llmv1.Sampling{Logprobs: proto.Uint32(0)}, Gathered: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
			f := still(t, a, b)
			b.refuse.Store(streamerr.New(streamerr.Unavailable, "not yet"))
			l := ask(t, f, req).started(t).runs(t)
			b.refuse.Store(nil)
			a.grpc.Stop()
			eventually(t, "it is started anew", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.restarted == 1 })
			l.runs(t)
			close(b.finish)
			l.counts(t)
			if moves := l.record.Proto().GetMoves(); len(moves) != 1 || moves[0].GetReason() != streamv1.Reason_REASON_PEER_LOST || moves[0].GetTokens() != 0 {
				t.Error(moves)
			}
			came := l.record.Proto().GetTokensIn()
			takenBack := -int32(l.record.Proto().GetTokensOut()) // the test does not record deliveries
			if takenBack <= 0 || takenBack != int32(came-l.sum) {
				t.Errorf("%d tokens came for an answer of %d, and %d were taken back", came, l.sum, takenBack)
			}
		})
	}
}

func TestAnswerThatChatServiceStartsAnewIsResumedFromThere(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	f, said := still(t, a, b), ""
	c := newCourse(f, &chatv1.ChatRequest{Gathered: true}, func(out *chatv1.GenerateResponse, _ error) bool {
		if out.GetRestarted() != nil {
			said = ""
		}
		said += out.GetDelta().GetText()
		return true
	})
	started := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{}}}
	restarted := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Restarted{Restarted: &chatv1.Restarted{}}}
	first, second := f.all()[0], f.all()[1]
	c.deliver(t.Context(), first, started)
	c.deliver(t.Context(), first, delta(&chatv1.Delta{Text: "lost", Ids: []uint32{1, 2, 3}}))
	c.deliver(t.Context(), first, restarted)
	c.deliver(t.Context(), first, delta(&chatv1.Delta{Text: "a", Ids: []uint32{4}}))
	c.lost(t.Context(), first, streamerr.New(streamerr.Draining, "it goes"))
	if ids := c.request().GetAnswered().GetIds(); len(ids) != 1 || ids[0] != 4 {
		t.Error(ids)
	}
	c.deliver(t.Context(), second, started)
	c.deliver(t.Context(), second, delta(&chatv1.Delta{Text: "a", Ids: []uint32{4}}))
	c.deliver(t.Context(), second, delta(&chatv1.Delta{Text: "b", Ids: []uint32{5}}))
	if said != "ab" {
		t.Errorf("%q", said)
	}
}

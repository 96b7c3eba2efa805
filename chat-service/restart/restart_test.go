package restart_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/restart"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A try is a script for one call of the pipeline: it delivers words of one token each, and then
// ends or fails.
type try struct {
	words int
	held  int           // further tokens without text
	takes time.Duration // time before it fails
	fails error         // nil means an End
}

// A pipeline plays one try after another, and then repeats the last try.
type pipeline struct {
	tries []try
	asked []*chatv1.ChatRequest
}

func (p *pipeline) engine(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
	return func(yield func(*chatv1.GenerateResponse, error) bool) {
		t := p.tries[min(len(p.asked), len(p.tries)-1)]
		p.asked = append(p.asked, req)
		for out, err := range restart.Watch(stream.Push(t.worker)).Range(ctx, &workerv1.TokenRequest{}) {
			var up *chatv1.GenerateResponse
			switch m := out.GetMessage().(type) {
			case *workerv1.GenerateResponse_Started:
				up = &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: m.Started}}
			case *workerv1.GenerateResponse_Tokens:
				id := m.Tokens.GetIds()[0]
				if int(id) >= t.words {
					continue
				}
				up = &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: fmt.Sprint(id, " "), Tokens: 1}}}
			case *workerv1.GenerateResponse_End:
				up = &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: m.End}}
			}
			if !yield(up, err) {
				return
			}
		}
	}
}

func (t try) worker(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		if t.words+t.held == 0 && t.fails != nil {
			yield(nil, t.fails)
			return
		}
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{}}}, nil) {
			return
		}
		for id := range t.words + t.held {
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{uint32(id)}}}}, nil) {
				return
			}
		}
		if t.fails != nil {
			time.Sleep(t.takes)
			yield(nil, t.fails)
			return
		}
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}, nil)
	}
}

var (
	gathered = &chatv1.ChatRequest{StreamId: "s", Gathered: true}
	lost     = &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath("engine", "llm-worker/0"), Message: "the connection broke"}
)

// An outcome is the result that the caller read.
type outcome struct {
	text      string // the valid text
	began     int    // Started
	restarted int
	end       *llmv1.End
	err       error
	record    *streamv1.Record
}

// An engine answers requests for one choice.
type engine = stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse]

// restarting returns an engine that restarts gathered answers of next.
func restarting(o restart.Options, next engine) engine {
	return stream.Engine[*chatv1.ChatRequest, *chatv1.GenerateResponse](func(ctx context.Context, req *chatv1.ChatRequest, to restart.Reader) {
		if !req.GetGathered() {
			stream.Push(next)(ctx, req, to)
			return
		}
		restart.Gathered(ctx, &o, func(ctx context.Context, anew bool, to restart.Reader) {
			asked := proto.CloneOf(req)
			if anew {
				asked.Answered = nil
			}
			stream.Push(next)(ctx, asked, to)
		}, to)
	}).Range
}

func ask(ctx context.Context, o restart.Options, p *pipeline, req *chatv1.ChatRequest) (got outcome) {
	var l ledger.Ledger
	record := l.Open("s", "chat-service", "")
	ctx, ctl := stream.WithControl(ledger.With(ctx, record), time.Second)
	defer ctl.Release()
	for out, err := range restarting(o, p.engine)(ctx, req) {
		if err != nil {
			got.err = err
			break
		}
		record.In(int(out.GetDelta().GetTokens()))
		record.Sent(int(out.GetDelta().GetTokens()), nil)
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			got.began++
		case *chatv1.GenerateResponse_Delta:
			got.text += m.Delta.GetText()
		case *chatv1.GenerateResponse_Restarted:
			got.text = ""
			got.restarted++
		case *chatv1.GenerateResponse_End:
			got.end = m.End
		}
	}
	got.record = record.Proto()
	return got
}

func TestGatheredAnswerIsRestarted(t *testing.T) {
	for _, reason := range []streamerr.Reason{
		streamerr.PeerLost, streamerr.PeerReset, streamerr.Draining, streamerr.Unavailable, streamerr.Overloaded, streamerr.EngineFailed, streamerr.Deadline,
	} {
		p := &pipeline{tries: []try{{words: 2, fails: streamerr.New(reason, "no")}, {words: 3}}}
		got := ask(t.Context(), restart.Options{}, p, gathered)
		if got.err != nil || got.end == nil || got.text != "0 1 2 " || got.began != 1 || got.restarted != 1 {
			t.Errorf("%v: %+v", reason, got)
		}
		if moves := got.record.GetMoves(); len(moves) != 1 || moves[0].GetReason() != reason.Proto() || moves[0].GetTokens() != 0 {
			t.Errorf("%v: moves %v", reason, moves)
		}
		if got.record.GetTokensIn() != 5 || got.record.GetTokensOut() != 3 {
			t.Errorf("%v: of %d tokens %d count, want 5 and 3", reason, got.record.GetTokensIn(), got.record.GetTokensOut())
		}
	}
}

func TestTokensWithoutTextCountAsTokens(t *testing.T) {
	p := &pipeline{tries: []try{{held: 1, fails: lost}, {words: 1}}}
	if got := ask(t.Context(), restart.Options{}, p, gathered); got.err != nil || got.text != "0 " || got.began != 1 || got.restarted != 1 {
		t.Errorf("%+v", got)
	}
}

func TestVisibleAnswerIsNotRestarted(t *testing.T) {
	p := &pipeline{tries: []try{{words: 2, fails: lost}, {words: 3}}}
	if got := ask(t.Context(), restart.Options{}, p, &chatv1.ChatRequest{}); !errors.Is(got.err, streamerr.PeerLost) || got.text != "0 1 " || len(p.asked) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestFirstLossIsTheEnding(t *testing.T) {
	for name, later := range map[string]try{
		"refused":   {fails: streamerr.New(streamerr.Invalid, "too long, the second worker's error")},
		"full":      {fails: streamerr.New(streamerr.Overloaded, "full, the second worker's error")},
		"lost, too": {words: 1, fails: streamerr.New(streamerr.EngineFailed, "dead, the second worker's error")},
	} {
		p := &pipeline{tries: []try{{words: 2, fails: lost}, later}}
		got := ask(t.Context(), restart.Options{}, p, gathered)
		e := streamerr.As(got.err)
		if e.Reason != streamerr.PeerLost || !slices.Equal(e.Path, lost.Path) || !strings.Contains(e.Text(), "the connection broke") || !strings.Contains(e.Text(), "the second worker's error") {
			t.Errorf("%s: %v", name, e)
		}
		if len(p.asked) > 1+restart.Max {
			t.Errorf("%s: asked %d times", name, len(p.asked))
		}
		if lost.Message != "the connection broke" {
			t.Fatal("the error itself was changed")
		}
	}
}

// TestCutThatRepeatsIsRestartedOnce: an engine that cuts the same answer at the same token has a limit of its
// own.
func TestCutThatRepeatsIsRestartedOnce(t *testing.T) {
	p := &pipeline{tries: []try{{words: 2, fails: lost}}}
	got := ask(t.Context(), restart.Options{}, p, gathered)
	if !errors.Is(got.err, streamerr.PeerLost) || len(p.asked) != 2 || len(got.record.GetMoves()) != 1 {
		t.Errorf("asked %d times: %+v", len(p.asked), got)
	}
	// Another token, or another reason, is another loss.
	other := &streamerr.Error{Reason: streamerr.EngineFailed, Path: lost.Path, Message: lost.Message}
	for _, second := range []try{{words: 3, fails: lost}, {words: 2, fails: other}} {
		p := &pipeline{tries: []try{{words: 2, fails: lost}, second, {words: 5}}}
		if got := ask(t.Context(), restart.Options{}, p, gathered); got.err != nil || len(p.asked) != 3 {
			t.Errorf("asked %d times: %+v", len(p.asked), got)
		}
	}
}

// An answer whose losses each took a long search for a worker must not search again and again.
func TestRestartsHaveATimeLimit(t *testing.T) {
	for took, want := range map[time.Duration]int{time.Second: 1 + restart.Max, restart.Window + time.Second: 2} {
		synctest.Test(t, func(t *testing.T) {
			p := &pipeline{tries: []try{{words: 2, takes: took, fails: lost}, {words: 3, takes: took, fails: lost}, {words: 4, takes: took, fails: lost}}}
			if got := ask(t.Context(), restart.Options{}, p, gathered); !errors.Is(got.err, streamerr.PeerLost) || len(p.asked) != want {
				t.Errorf("%v: asked %d times, want %d: %v", took, len(p.asked), want, got.err)
			}
		})
	}
}

func TestRestartsHaveABudget(t *testing.T) {
	left := 1
	o := restart.Options{Allow: func() bool { left--; return left >= 0 }}
	p := &pipeline{tries: []try{{words: 2, fails: lost}, {words: 3, fails: lost}}}
	if got := ask(t.Context(), o, p, gathered); !errors.Is(got.err, streamerr.PeerLost) || len(p.asked) != 2 {
		t.Errorf("asked %d times: %+v", len(p.asked), got)
	}
}

func TestStopEndsTheWholeAnswer(t *testing.T) {
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	gone := streamerr.New(streamerr.ClientGone, "left")
	p := &pipeline{tries: []try{{words: 2, fails: lost}, {words: 3}}}
	var last error
	for out, err := range restarting(restart.Options{}, p.engine)(ctx, gathered) {
		if out.GetDelta() != nil {
			ctl.Stop(gone)
		}
		last = err
	}
	if !errors.Is(last, streamerr.ClientGone) || len(p.asked) != 1 {
		t.Errorf("%v, asked %d times", last, len(p.asked))
	}
}

func TestRestartOmitsThePartOfAnotherChatService(t *testing.T) {
	req := &chatv1.ChatRequest{Gathered: true, TellIds: true, Answered: &chatv1.TokenIDs{Ids: []uint32{1, 2}}}
	p := &pipeline{tries: []try{{words: 2, fails: lost}, {words: 3}}}
	if got := ask(t.Context(), restart.Options{}, p, req); got.err != nil {
		t.Fatal(got.err)
	}
	if p.asked[0].GetAnswered() == nil || p.asked[1].GetAnswered() != nil || !p.asked[1].GetTellIds() || req.GetAnswered() == nil {
		t.Error(p.asked)
	}
}

func TestRestartKeepsTheContract(t *testing.T) {
	streamtest.Run(t, func(*testing.T) streamtest.Subject[*chatv1.ChatRequest, *chatv1.GenerateResponse] {
		failing := func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
			return func(yield func(*chatv1.GenerateResponse, error) bool) {
				switch cause := stream.Cause(ctx); {
				case cause != nil:
					yield(nil, cause)
					return
				case req.GetModel() == "bad":
					yield(nil, streamerr.InvalidParam("model", "bad"))
					return
				case !yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{}}}, nil):
					return
				}
				for i := 0; i < 3 || req.GetModel() == "long"; i++ {
					select {
					case <-stream.Stopping(ctx):
						yield(nil, stream.Cause(ctx))
						return
					case <-time.After(time.Millisecond):
					}
					if !yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: "x", Tokens: 1}}}, nil) {
						return
					}
				}
				yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}, nil)
			}
		}
		model := func(name string) func() *chatv1.ChatRequest {
			return func() *chatv1.ChatRequest { return &chatv1.ChatRequest{StreamId: "s", Model: name, Gathered: true} }
		}
		return streamtest.Subject[*chatv1.ChatRequest, *chatv1.GenerateResponse]{
			Sequence: restarting(restart.Options{}, failing), Short: model("short"), Long: model("long"), Bad: model("bad"),
		}
	})
}

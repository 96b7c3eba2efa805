package route

import (
	"bytes"
	"context"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/whence-dev/whence/chat-service/fleet"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// unlimited returns a request without max_tokens.
func unlimited() *workerv1.TokenRequest {
	req := ask(0)
	req.Sampling.MaxTokens = nil
	return req
}

func contexts(p *Pool, lengths ...uint32) {
	for i, w := range p.Members() {
		said := info(w.Name())
		said.ContextLength = lengths[i]
		w.Say(said)
	}
}

// A worker with a longer context ends the answer where the first worker's context would have ended
// it.
func TestFirstWorkersRoomIsSentToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failing("w/0", 4, 0, streamerr.PeerLost), &fake{name: "w/1"}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 1}, a, b)
		contexts(p, 3+40, contextLength)
		got := read(t.Context(), p, unlimited(), nil)
		if got.err != nil || len(got.tokens) != 40 || got.end.GetFinish() != llmv1.Finish_FINISH_LENGTH || got.end.GetUsage().GetCompletionTokens() != 40 {
			t.Error(len(got.tokens), got.err, got.end)
		}
		for _, asked := range []*workerv1.TokenRequest{a.asked[0], b.asked[0]} {
			if asked.GetSampling().GetMaxTokens() != 40 {
				t.Error("the room was not sent:", asked)
			}
		}
		if !good(p.Members()[1]) {
			t.Error("the second worker is blamed")
		}
	})
}

func TestAnswersWithoutALimitGoToWorkersWithRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, long := &fake{name: "w/0"}, &fake{name: "w/1"}
		p := poolOf(t, Options{Policy: inOrder}, short, long)
		contexts(p, 3+5, contextLength)
		if got := read(t.Context(), p, unlimited(), nil); got.err != nil || len(short.asked) != 0 {
			t.Error("an answer without a limit went where it has 5 tokens:", got.err)
		}
		if got := read(t.Context(), p, ask(5), nil); got.err != nil || len(short.asked) != 1 {
			t.Error("an answer of 5 tokens has room there:", got.err)
		}
		p.Members()[1].Say(nil)
		if got := read(t.Context(), p, unlimited(), nil); got.err != nil || len(got.tokens) != 5 {
			t.Error("a small room is better than none:", got.err)
		}
	})
}

// babbling returns a worker that sends ids, n at a time, and ends after all of them.
func babbling(ids, n int) stream.Sequence[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
	return func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{PromptTokens: 3}}}, nil)
			for sent := 0; sent < ids; sent += n {
				out := &workerv1.Tokens{Ids: make([]uint32, n), Logprobs: make([]float32, n), TopIds: make([]uint32, 2*n), TopLogprobs: make([]float32, 2*n)}
				if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: out}}, nil) {
					return
				}
			}
			yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
				Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_LENGTH, Usage: &llmv1.Usage{PromptTokens: 3, CompletionTokens: 5},
			}}}, nil)
		}
	}
}

func TestAnswerBeyondItsLimitIsCut(t *testing.T) {
	var log bytes.Buffer
	p := poolOf(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, &fake{name: "w/0"})
	w := fleet.Pretended("w/0", babbling(1<<20, 3))
	w.Say(info("w/0"))
	p.Pretend(w)
	got := read(t.Context(), p, ask(5), nil)
	if got.err != nil || len(got.tokens) != 5 || got.end.GetFinish() != llmv1.Finish_FINISH_LENGTH || got.end.GetUsage().GetCompletionTokens() != 5 {
		t.Error(len(got.tokens), got.err, got.end)
	}
	if p.calls.Wait(); w.Load() != 0 || !strings.Contains(log.String(), "more tokens than it was asked for") {
		t.Error(w.Load(), log.String())
	}
}

// Five tokens of an engine that answers in text may be encoded in seven ids, and all of them are
// the answer.
func TestTextMayTakeMoreIDsThanItsLimit(t *testing.T) {
	p := poolOf(t, Options{}, &fake{name: "w/0"})
	w := fleet.Pretended("w/0", babbling(7, 7))
	said := info("w/0")
	said.Continues, said.Capabilities = false, &llmv1.Capabilities{Answer: llmv1.Form_FORM_TEXT, Sampling: []string{"max_tokens", "seed"}}
	w.Say(said)
	p.Pretend(w)
	got := read(t.Context(), p, ask(5), nil)
	if got.err != nil || len(got.tokens) != 7 || got.end.GetFinish() != llmv1.Finish_FINISH_LENGTH || got.end.GetUsage().GetCompletionTokens() != 5 {
		t.Error(len(got.tokens), got.err, got.end)
	}
	endless := fleet.Pretended("w/0", babbling(1<<20, 7)) // ignores max_tokens
	endless.Say(said)
	p.Pretend(endless)
	if got = read(t.Context(), p, ask(5), nil); got.err != nil || len(got.tokens) != 5*8 || got.end.GetFinish() != llmv1.Finish_FINISH_LENGTH {
		t.Error(len(got.tokens), got.err, got.end)
	}
}

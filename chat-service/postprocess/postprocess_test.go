package postprocess_test

import (
	"io/fs"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/postprocess"
	"github.com/whence-dev/whence/chat-service/toolcall"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

func tiny(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	b, err := fs.ReadFile(whencetiny.FS(), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestTokensOfOneMessageAreOneDelta(t *testing.T) {
	tok := tiny(t)
	p := postprocess.New(postprocess.Options{Tokenizer: tok, Stop: []string{"never said"}})
	ids := tok.Encode("one two three", false)
	out, end := p.Tokens(&workerv1.Tokens{Ids: ids})
	if out.GetDelta().GetText() != "one two three" || int(out.GetDelta().GetTokens()) != len(ids) || end != nil {
		t.Error(out, end)
	}
}

func TestTokensAfterTheStopStringAreNotCounted(t *testing.T) {
	tok := tiny(t)
	p := postprocess.New(postprocess.Options{Tokenizer: tok, Stop: []string{"two"}})
	p.Started(7)
	before := tok.Encode("one two", false)
	out, end := p.Tokens(&workerv1.Tokens{Ids: append(before, tok.Encode(" three four", false)...), CachedTokens: new(uint32(3))})
	want := &llmv1.Usage{PromptTokens: 7, CompletionTokens: uint32(len(before)), CachedTokens: new(uint32(3))}
	got := end.GetEnd().GetUsage()
	if out.GetDelta().GetText() != "one " || got.String() != want.String() || end.GetEnd().GetMatchedStop() != "two" {
		t.Errorf("%v %v, want %v", out, end, want)
	}
}

func TestTheFirstDeltaTellsTheCachedTokens(t *testing.T) {
	tok := tiny(t)
	p := postprocess.New(postprocess.Options{Tokenizer: tok, Reuse: true})
	for i, cached := range []*uint32{new(uint32(0)), nil} {
		out, _ := p.Tokens(&workerv1.Tokens{Ids: tok.Encode(" three", false), CachedTokens: cached})
		if got := out.GetDelta().CachedTokens; (got == nil) != (cached == nil) {
			t.Errorf("delta %d: %v", i, got)
		}
		p.Sent()
	}
}

func TestReplayedTokensHaveIDsButAreNotCounted(t *testing.T) {
	tok := tiny(t)
	p := postprocess.New(postprocess.Options{Tokenizer: tok, TellIDs: true})
	known, fresh := tok.Encode("one two", false), tok.Encode(" three", false)
	again, _ := p.Replay(known)
	if d := again.GetDelta(); d.GetText() != "one two" || d.GetTokens() != 0 || len(d.GetIds()) != len(known) {
		t.Error(again)
	}
	out, _ := p.Tokens(&workerv1.Tokens{Ids: fresh})
	if d := out.GetDelta(); d.GetText() != " three" || int(d.GetTokens()) != len(fresh) || len(d.GetIds()) != len(fresh) {
		t.Error(out)
	}
}

// TestACallKeepsTheIDOfItsModel: Kimi refers to its calls by the ids that it gives them.
func TestACallKeepsTheIDOfItsModel(t *testing.T) {
	tok := tiny(t)
	p := postprocess.New(postprocess.Options{Tokenizer: tok, Calls: &postprocess.Calls{
		Format: toolcall.Kimi, Known: func(tool string) bool { return tool == "f" },
	}})
	text := "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>f<|tool_call_argument_begin|>{}"
	out, _ := p.Tokens(&workerv1.Tokens{Ids: tok.Encode(text, false)})
	calls := out.GetDelta().GetToolCalls()
	if len(calls) != 2 || calls[0].GetId() != "functions.f:0" || !strings.HasPrefix(calls[1].GetId(), "call_") {
		t.Error(calls)
	}
}

// TestTokenCostsAtMostOneAllocation covers answers that are only text. The allocation is the delta's
// message, which Reuse saves.
func TestTokenCostsAtMostOneAllocation(t *testing.T) {
	tok := tiny(t)
	tokens := &workerv1.Tokens{Ids: tok.Encode(" the", false)[:1]}
	for reuse, want := range map[bool]float64{false: 1, true: 0} {
		p := postprocess.New(postprocess.Options{Tokenizer: tok, Reuse: reuse})
		var out *chatv1.GenerateResponse
		p.Tokens(tokens)
		if n := testing.AllocsPerRun(1000, func() { out, _ = p.Tokens(tokens) }); n != want || out.GetDelta().GetTokens() != 1 {
			t.Errorf("reuse %v: %v allocations for %v", reuse, n, out)
		}
		if n := testing.AllocsPerRun(1000, func() { p.Tokens(tokens); p.Sent() }); n != want {
			t.Errorf("reuse %v: %v allocations for a delta that is sent", reuse, n)
		}
	}
}

// TestReusedDeltasAreAsNewOnes compares deltas of all kinds, of which a reader has changed the
// choice.
func TestReusedDeltasAreAsNewOnes(t *testing.T) {
	tok := tiny(t)
	kept, reused := postprocess.New(postprocess.Options{Tokenizer: tok, TellIDs: true}), postprocess.New(postprocess.Options{Tokenizer: tok, TellIDs: true, Reuse: true})
	ids := tok.Encode("one two", false)
	for i, tokens := range []*workerv1.Tokens{
		{Ids: ids},
		{Ids: ids[:1], Logprobs: []float32{-1}},
		{Ids: ids},
	} {
		want, _ := kept.Tokens(tokens)
		got, _ := reused.Tokens(tokens)
		if !proto.Equal(got, want) {
			t.Errorf("delta %d: %v, want %v", i, got, want)
		}
		got.GetDelta().Choice = 3
		if i > 0 {
			reused.Sent() // the next delta may have the memory of another answer's
		}
	}
}

// TestImpossibleTokenAppearsOnceAmongTheLikeliest: engines fill the places of tokens that they do not know.
func TestImpossibleTokenAppearsOnceAmongTheLikeliest(t *testing.T) {
	tok := tiny(t)
	p := postprocess.New(postprocess.Options{Tokenizer: tok})
	a, b := tok.Encode("a", false)[0], tok.Encode("b", false)[0]
	out, _ := p.Tokens(&workerv1.Tokens{
		Ids: []uint32{a, b}, Logprobs: []float32{-1, -9999}, TopIds: []uint32{b, a, a, b, b, b}, TopLogprobs: []float32{-0.5, -1, -9999, -9999, -9999, -9999},
	})
	got := out.GetDelta().GetLogprobs()
	if len(got) != 2 || len(got[0].GetTop()) != 2 || got[0].GetTop()[1].GetLogprob() != -1 || len(got[1].GetTop()) != 1 {
		t.Error(got)
	}
}

// TestLogprobsAreNumbersOfJSON: engines report minus infinity for tokens that a guide forbids.
func TestLogprobsAreNumbersOfJSON(t *testing.T) {
	tok := tiny(t)
	p := postprocess.New(postprocess.Options{Tokenizer: tok})
	ids := tok.Encode("hello", false)[:1]
	inf := float32(math.Inf(1))
	for sent, want := range map[float32]float32{-0.5: -0.5, -inf: -9999, float32(math.NaN()): -9999, inf: 0, -1e30: -9999} {
		out, _ := p.Tokens(&workerv1.Tokens{Ids: ids, Logprobs: []float32{sent}, TopIds: ids, TopLogprobs: []float32{sent}})
		got := out.GetDelta().GetLogprobs()
		if len(got) != 1 || got[0].GetLogprob() != want || len(got[0].GetTop()) != 1 || got[0].GetTop()[0].GetLogprob() != want {
			t.Errorf("%v becomes %v, want %v", sent, got, want)
		}
	}
}

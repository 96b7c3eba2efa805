package chat_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/prompt"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// The engines of the tests are loops.
type (
	engine      = stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse]
	tokenEngine = stream.Sequence[*workerv1.TokenRequest, *workerv1.GenerateResponse]
)

// pipeline returns the pipeline for m over worker.
func pipeline(m *chat.Model, worker tokenEngine) engine {
	return chat.New(m, stream.Push(worker)).Range
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func model(t testing.TB) *chat.Model {
	t.Helper()
	m, err := chat.Load(whencetiny.FS(), whencetiny.Name, whencetiny.Owner)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A parrot is a worker that always gives the same answer, in items of a few tokens.
type parrot struct {
	ids     []uint32
	step    func() int    // tokens of the next item; 1 if nil
	pause   time.Duration // between items
	forever bool
	fail    error        // after the last token, instead of an End
	finish  llmv1.Finish // LENGTH unless set

	live  atomic.Int32
	asked atomic.Pointer[workerv1.TokenRequest]
	sent  atomic.Int32 // tokens
}

func (p *parrot) generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		if cause := stream.Cause(ctx); cause != nil {
			yield(nil, cause)
			return
		}
		p.asked.Store(req)
		p.live.Add(1)
		defer p.live.Add(-1)
		stopping := stream.Stopping(ctx)
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{PromptTokens: uint32(len(req.GetPrompt()))}}}, nil) {
			return
		}
		for ids := p.ids; len(ids) > 0 || p.forever; {
			if len(ids) == 0 {
				ids = p.ids
			}
			n := 1
			if p.step != nil {
				n = min(p.step(), len(ids))
			}
			select {
			case <-stopping:
				yield(nil, stream.Cause(ctx))
				return
			case <-time.After(p.pause):
			}
			p.sent.Add(int32(n))
			tokens := &workerv1.Tokens{Ids: ids[:n]}
			if p.sent.Load() == int32(n) {
				tokens.CachedTokens = new(uint32(5))
			}
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: tokens}}, nil) {
				return
			}
			ids = ids[n:]
		}
		if p.fail != nil {
			yield(nil, p.fail)
			return
		}
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Finish: cmp.Or(p.finish, llmv1.Finish_FINISH_LENGTH),
			Usage: &llmv1.Usage{PromptTokens: uint32(len(req.GetPrompt())), CompletionTokens: uint32(len(p.ids))},
		}}}, nil)
	}
}

func user(content string) *chatv1.ChatRequest {
	return &chatv1.ChatRequest{Model: whencetiny.Name, Messages: []*chatv1.Message{{Role: "user", Content: content}}}
}

// read ranges over a stream and joins its text.
func read(t testing.TB, e engine, req *chatv1.ChatRequest) (text string, tokens uint32, end *llmv1.End, err error) {
	t.Helper()
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	var b strings.Builder
	for out, e := range e(ctx, req) {
		if e != nil {
			return b.String(), tokens, nil, e
		}
		if d := out.GetDelta(); d != nil {
			if d.GetText() == "" {
				t.Error("an empty delta")
			}
			b.WriteString(d.GetText())
			tokens += d.GetTokens()
		}
		end = out.GetEnd()
	}
	return b.String(), tokens, end, nil
}

func TestPipelineKeepsTheContract(t *testing.T) {
	m := model(t)
	for _, stops := range [][]string{nil, {"never said"}} {
		streamtest.Run(t, func(*testing.T) streamtest.Subject[*chatv1.ChatRequest, *chatv1.GenerateResponse] {
			p := &parrot{ids: m.Tokenizer.Encode("one two three ", false), pause: time.Millisecond}
			long := &parrot{ids: p.ids, pause: time.Millisecond, forever: true}
			worker := func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
				if req.GetSampling().GetIgnoreEos() {
					return long.generate(ctx, req)
				}
				return p.generate(ctx, req)
			}
			ask := func(content string, long bool) func() *chatv1.ChatRequest {
				return func() *chatv1.ChatRequest {
					req := user(content)
					req.Stop, req.Sampling = stops, &llmv1.Sampling{IgnoreEos: long}
					return req
				}
			}
			return streamtest.Subject[*chatv1.ChatRequest, *chatv1.GenerateResponse]{
				Sequence: pipeline(m, worker), Short: ask("hi", false), Long: ask("hi", true), Bad: ask("\xff", false),
				Live: func() int { return int(p.live.Load() + long.live.Load()) },
			}
		})
	}
}

func TestRequestBecomesThePromptOfTheModel(t *testing.T) {
	m := model(t)
	p := &parrot{ids: []uint32{1}}
	req := user("hello")
	req.StreamId, req.Session, req.Sampling = "id", "s", &llmv1.Sampling{TopK: proto.Uint32(5)}
	if _, _, _, err := read(t, pipeline(m, p.generate), req); err != nil {
		t.Fatal(err)
	}
	asked := p.asked.Load()
	if got := m.Tokenizer.Decode(asked.GetPrompt(), false); got != "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n" {
		t.Errorf("%q", got)
	}
	if asked.GetStreamId() != "id" || asked.GetModel() != whencetiny.Name || asked.GetSession() != "s" || asked.GetSampling().GetTopK() != 5 {
		t.Error(asked)
	}
}

func TestChoicesShareOnePromptAndHaveTheirOwnSeeds(t *testing.T) {
	m := model(t)
	render, rendered := m.Render, 0
	m.Render = func(ctx context.Context, in prompt.Input) (string, error) {
		rendered++
		return render(ctx, in)
	}
	var mu sync.Mutex
	asked := map[string]*workerv1.TokenRequest{}
	worker := func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		mu.Lock()
		defer mu.Unlock()
		asked[req.GetStreamId()] = req
		return (&parrot{ids: []uint32{1}}).generate(ctx, req)
	}
	req := user("hello")
	req.StreamId, req.N, req.Sampling = "s", 3, &llmv1.Sampling{Seed: new(uint64(40))}
	if _, _, _, err := read(t, pipeline(m, worker), req); err != nil || rendered != 1 || len(asked) != 3 {
		t.Fatal(err, rendered, asked)
	}
	for i := range uint64(3) {
		got := asked[fmt.Sprint("s.", i)]
		if got.GetSampling().GetSeed() != 40+i || !slices.Equal(got.GetPrompt(), asked["s.0"].GetPrompt()) {
			t.Errorf("choice %d was asked %v", i, got)
		}
	}
}

func TestTextIsTheSameForAnyTokenBoundaries(t *testing.T) {
	m := model(t)
	want := "Korean 안녕하세요, emoji 👩‍👩‍👧‍👦❄️, and the end\n"
	ids := m.Tokenizer.Encode(want, false)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		p := &parrot{ids: ids, step: func() int { return 1 + rng.IntN(5) }}
		text, tokens, end, err := read(t, pipeline(m, p.generate), user("x"))
		if err != nil || text != want || tokens != uint32(len(ids)) || end.GetFinish() != llmv1.Finish_FINISH_LENGTH {
			t.Fatalf("%q, %d of %d tokens, %v, %v", text, tokens, len(ids), end, err)
		}
	}
}

func TestStopStringEndsTheAnswerAndTheWorker(t *testing.T) {
	m := model(t)
	p := &parrot{ids: m.Tokenizer.Encode("The quick brown fox jumps over the lazy dog. ", false), forever: true}
	req := user("x")
	req.Stop = []string{"fox ju", "dog"}
	text, tokens, end, err := read(t, pipeline(m, p.generate), req)
	if err != nil || text != "The quick brown " || end.GetMatchedStop() != "fox ju" || end.GetFinish() != llmv1.Finish_FINISH_STOP {
		t.Fatalf("%q, %v, %v", text, end, err)
	}
	if end.GetUsage().GetCompletionTokens() != uint32(p.sent.Load()) || tokens > uint32(p.sent.Load()) || end.GetUsage().GetPromptTokens() == 0 {
		t.Error(end.GetUsage(), tokens, p.sent.Load())
	}
	if end.GetUsage().GetCachedTokens() != 5 { // the worker's own usage arrives too late
		t.Error(end.GetUsage())
	}
	if p.live.Load() != 0 {
		t.Error("the worker continues")
	}
}

func TestMinTokensDelaysStopStrings(t *testing.T) {
	m := model(t)
	p := &parrot{ids: m.Tokenizer.Encode("a b c d a b c d a b c d", false)}
	req := user("x")
	req.Stop, req.Sampling = []string{"b"}, &llmv1.Sampling{MinTokens: proto.Uint32(3)}
	if text, _, _, err := read(t, pipeline(m, p.generate), req); err != nil || text != "a b c d a " {
		t.Errorf("%q, %v", text, err)
	}
}

func TestHeldBackTextIsDeliveredWhenTheStreamFails(t *testing.T) {
	m := model(t)
	p := &parrot{ids: m.Tokenizer.Encode("almost a sto", false), fail: streamerr.New(streamerr.PeerLost, "gone")}
	req := user("x")
	req.Stop = []string{"stop"}
	text, _, _, err := read(t, pipeline(m, p.generate), req)
	if text != "almost a sto" || !errors.Is(err, streamerr.PeerLost) {
		t.Errorf("%q, %v", text, err)
	}
}

func TestBadRequestsAreRefusedByName(t *testing.T) {
	m := model(t)
	for name, c := range map[string]struct {
		req     *chatv1.ChatRequest
		param   string
		message string
	}{
		"no messages":         {&chatv1.ChatRequest{Model: "m"}, "messages", ""},
		"role":                {&chatv1.ChatRequest{Messages: []*chatv1.Message{{Role: "robot"}}}, "messages[0].role", ""},
		"too long":            {user(strings.Repeat("word ", 3000)), "messages", "This model's maximum context length is 1024 tokens."},
		"empty stop":          {&chatv1.ChatRequest{Messages: user("x").GetMessages(), Stop: []string{"a", ""}}, "stop[1]", ""},
		"too many stops":      {&chatv1.ChatRequest{Messages: user("x").GetMessages(), Stop: make([]string, 17)}, "stop", "17"},
		"broken stop":         {&chatv1.ChatRequest{Messages: user("x").GetMessages(), Stop: []string{"\xff"}}, "stop[0]", ""},
		"long session":        {&chatv1.ChatRequest{Messages: user("x").GetMessages(), Session: strings.Repeat("x", 257)}, "session", "257 bytes"},
		"stop of 2,000 bytes": {&chatv1.ChatRequest{Messages: user("x").GetMessages(), Stop: []string{strings.Repeat("x", 2000)}}, "stop[0]", ""},
	} {
		p := &parrot{ids: []uint32{1}}
		_, _, _, err := read(t, pipeline(m, p.generate), c.req)
		e := streamerr.As(err)
		if err == nil || e.Reason != streamerr.Invalid || e.Param != c.param || !strings.Contains(e.Message, c.message) {
			t.Errorf("%s: %v (param %q)", name, err, e.Param)
		}
		if p.asked.Load() != nil {
			t.Errorf("%s reached the worker", name)
		}
	}
}

// Many clients always ask for more tokens than a small context has room for.
func TestLimitAboveTheRoomIsCapped(t *testing.T) {
	m := model(t)
	for _, asked := range []uint32{1024, 32_000, math.MaxUint32} {
		p := &parrot{ids: []uint32{1}}
		req := user("x")
		req.Sampling = &llmv1.Sampling{MaxTokens: &asked, MinTokens: &asked}
		_, _, _, err := read(t, pipeline(m, p.generate), req)
		sent := p.asked.Load()
		room := uint32(m.ContextLength - len(sent.GetPrompt()))
		if err != nil || sent.GetSampling().GetMaxTokens() != room || sent.GetSampling().GetMinTokens() != room || req.GetSampling().GetMaxTokens() != asked {
			t.Errorf("%d: sent %v for a room of %d, %v", asked, sent.GetSampling(), room, err)
		}
	}
}

func BenchmarkPipeline(b *testing.B) {
	m := model(b)
	ids := m.Tokenizer.Encode(strings.Repeat("The quick brown fox jumps over the lazy dog. ", 20), false)
	items := make([]*workerv1.GenerateResponse, len(ids))
	for i := range ids {
		items[i] = &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: ids[i : i+1]}}}
	}
	started := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{Model: m.Name}}}
	for name, stops := range map[string][]string{"plain": nil, "stop string": {"never said", "nor this"}} {
		b.Run(name, func(b *testing.B) {
			endless := func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
				return func(yield func(*workerv1.GenerateResponse, error) bool) {
					if !yield(started, nil) {
						return
					}
					for i := range b.N {
						if !yield(items[i%len(items)], nil) {
							return
						}
					}
				}
			}
			req := user("x")
			req.Stop = stops
			b.ReportAllocs()
			for _, err := range pipeline(m, endless)(b.Context(), req) {
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

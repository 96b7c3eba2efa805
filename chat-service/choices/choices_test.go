package choices_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/choices"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A fake answers each choice with this many words, one per pace.
type fake struct {
	words   int     // 0 means no end
	thought *uint32 // reasoning words; nil if they are not counted
	pace    func(choice string) time.Duration
	fail    func(choice string, word int) error // word 0 is before Started
	hold    func(choice string) <-chan struct{} // Started is sent when the channel is closed

	mu     sync.Mutex
	asked  []*chatv1.ChatRequest
	causes map[string]error // causes of the stopped choices
	live   int
}

func (f *fake) generate(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
	return func(yield func(*chatv1.GenerateResponse, error) bool) {
		id := req.GetStreamId()
		f.mu.Lock()
		f.asked = append(f.asked, req)
		f.live++
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.live--
			if cause := stream.Cause(ctx); cause != nil {
				f.causes[id] = cause
			}
		}()
		if f.hold != nil {
			if held := f.hold(id); held != nil {
				<-held
			}
		}
		stopping := stream.Stopping(ctx)
		for word := 0; ; word++ {
			if f.fail != nil {
				if err := f.fail(id, word); err != nil {
					yield(nil, err)
					return
				}
			}
			if cause := stream.Cause(ctx); cause != nil {
				yield(nil, cause)
				return
			}
			out := &chatv1.GenerateResponse{}
			switch {
			case word == 0:
				out.Message = &chatv1.GenerateResponse_Started{Started: &llmv1.Started{StreamId: id, Model: "m", PromptTokens: 7}}
			case word > f.words && f.words > 0:
				out.Message = &chatv1.GenerateResponse_End{End: &llmv1.End{
					Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"engine"}, Finish: llmv1.Finish_FINISH_LENGTH,
					Usage: &llmv1.Usage{PromptTokens: 7, CachedTokens: new(uint32(2)), CompletionTokens: uint32(f.words), ReasoningTokens: f.thought},
				}}
			default:
				pace := time.Millisecond
				if f.pace != nil {
					pace = f.pace(id)
				}
				select {
				case <-time.After(pace):
				case <-stopping:
					yield(nil, stream.Cause(ctx))
					return
				}
				out.Message = &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: fmt.Sprint(word, " "), Tokens: 1}}
			}
			if !yield(out, nil) || out.GetEnd() != nil {
				return
			}
		}
	}
}

func (f *fake) running() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live
}

// An engine answers requests.
type engine = stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse]

// merged returns an engine that makes a separate request to next for each choice.
func merged(next engine) engine {
	return stream.Engine[*chatv1.ChatRequest, *chatv1.GenerateResponse](func(ctx context.Context, req *chatv1.ChatRequest, to choices.Reader) {
		choices.Merge(ctx, req, func(ctx context.Context, choice int, to choices.Reader) {
			own := proto.CloneOf(req)
			own.StreamId, own.N = stream.ID(ctx), 1
			if len(req.GetPrompts()) > 0 {
				own.Prompts = req.GetPrompts()[choice/choices.Each(req):][:1]
			}
			stream.Push(next)(ctx, own, to)
		}, to)
	}).Range
}

func newFake(words int) *fake { return &fake{words: words, causes: map[string]error{}} }

func asking(n uint32, prompts ...string) *chatv1.ChatRequest {
	req := &chatv1.ChatRequest{StreamId: "s", N: n, Sampling: &llmv1.Sampling{Seed: new(uint64(40))}}
	for _, p := range prompts {
		req.Prompts = append(req.Prompts, &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: p}})
	}
	return req
}

func TestChoicesKeepTheContract(t *testing.T) {
	streamtest.Run(t, func(*testing.T) streamtest.Subject[*chatv1.ChatRequest, *chatv1.GenerateResponse] {
		short, long := newFake(3), newFake(0)
		next := func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
			switch {
			case req.GetModel() == "bad":
				return stream.Fail[*chatv1.GenerateResponse](streamerr.InvalidParam("model", "bad"))
			case req.GetModel() == "long":
				return long.generate(ctx, req)
			}
			return short.generate(ctx, req)
		}
		ask := func(model string) func() *chatv1.ChatRequest {
			return func() *chatv1.ChatRequest {
				req := asking(3)
				req.Model = model
				return req
			}
		}
		return streamtest.Subject[*chatv1.ChatRequest, *chatv1.GenerateResponse]{
			Sequence: merged(next), Short: ask("short"), Long: ask("long"), Bad: ask("bad"),
			Live: func() int { return short.running() + long.running() },
		}
	})
}

// read ranges over a stream, and returns the words of each choice, and the order of arrival.
func read(ctx context.Context, e engine, req *chatv1.ChatRequest) (texts map[uint32]string, order []uint32, ends int, end *llmv1.End, err error) {
	texts = map[uint32]string{}
	ctx, ctl := stream.WithControl(stream.WithID(ctx, req.GetStreamId()), time.Second)
	defer ctl.Release()
	for out, err := range e(ctx, req) {
		if err != nil {
			return texts, order, ends, nil, err
		}
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Delta:
			texts[m.Delta.GetChoice()] += m.Delta.GetText()
			order = append(order, m.Delta.GetChoice())
		case *chatv1.GenerateResponse_ChoiceEnd:
			ends++
		case *chatv1.GenerateResponse_End:
			end = m.End
		}
	}
	return texts, order, ends, end, nil
}

func TestChoicesAreSeparateStreamsOnTheHopsBelow(t *testing.T) {
	f := newFake(3)
	texts, _, ends, end, err := read(t.Context(), merged(f.generate), asking(2, "a", "b"))
	if err != nil || len(texts) != 4 || ends != 4 || end.GetUsage().GetPromptTokens() != 14 || end.GetUsage().GetCompletionTokens() != 12 || end.GetFinish() != 0 {
		t.Fatal(texts, ends, end, err)
	}
	for choice, text := range texts {
		if text != "1 2 3 " {
			t.Errorf("choice %d: %q", choice, text)
		}
	}
	slices.SortFunc(f.asked, func(a, b *chatv1.ChatRequest) int { return strings.Compare(a.GetStreamId(), b.GetStreamId()) })
	for i, req := range f.asked {
		if req.GetStreamId() != fmt.Sprint("s.", i) || req.GetPrompts()[0].GetText() != []string{"a", "b"}[i/2] {
			t.Errorf("choice %d was asked %v", i, req)
		}
	}
}

func TestUsageIsThatOfAllChoices(t *testing.T) {
	for _, thought := range []*uint32{nil, new(uint32(2))} {
		f := newFake(3)
		f.thought = thought
		want := &llmv1.Usage{PromptTokens: 14, CachedTokens: new(uint32(4)), CompletionTokens: 12}
		if thought != nil {
			want.ReasoningTokens = new(4 * *thought)
		}
		if _, _, _, end, err := read(t.Context(), merged(f.generate), asking(2, "a", "b")); err != nil || !proto.Equal(end.GetUsage(), want) {
			t.Errorf("%v %v, want %v", end.GetUsage(), err, want)
		}
	}
}

func TestSlowReaderGetsAllChoicesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(50)
		slow := func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
			return func(yield func(*chatv1.GenerateResponse, error) bool) {
				for out, err := range merged(f.generate)(ctx, req) {
					time.Sleep(10 * time.Millisecond)
					if !yield(out, err) {
						return
					}
				}
			}
		}
		_, order, _, _, err := read(t.Context(), slow, asking(4))
		if err != nil || len(order) != 200 {
			t.Fatal(len(order), err)
		}
		for i := 8; i+4 <= 160; i += 4 {
			if turn := slices.Sorted(slices.Values(order[i : i+4])); !slices.Equal(turn, []uint32{0, 1, 2, 3}) {
				t.Fatalf("from item %d on: %v", i, order[i:i+4])
			}
		}
	})
}

func TestFirstChoiceThatFailsEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		lost := &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath("llm-worker/1"), Message: "gone"}
		f.fail = func(id string, word int) error {
			if id == "s.1" && word == 5 {
				return lost
			}
			return nil
		}
		texts, _, ends, _, err := read(t.Context(), merged(f.generate), asking(3))
		if !errors.Is(err, streamerr.PeerLost) || streamerr.As(err).Path.String() != "llm-worker/1" || ends != 0 || texts[1] != "1 2 3 4 " || f.running() != 0 {
			t.Error(texts, ends, err, f.running())
		}
		if !errors.Is(f.causes["s.0"], streamerr.PeerLost) || !errors.Is(f.causes["s.2"], streamerr.PeerLost) {
			t.Error(f.causes)
		}
	})
}

func TestRefusedChoiceRefusesTheWholeStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(3)
		f.fail = func(id string, word int) error {
			if id == "s.3" && word == 0 {
				return streamerr.InvalidParam("prompt[2]", "token id 9999")
			}
			return nil
		}
		items := 0
		var last error
		for _, err := range merged(f.generate)(t.Context(), asking(2, "a", "b")) {
			last = err
			items++
		}
		if items != 1 || streamerr.As(last).Param != "prompt[1][2]" {
			t.Error(items, last, streamerr.As(last).Param)
		}
	})
}

// A server may admit the second choice only after the first has ended.
func TestStartedDoesNotWaitForAQueuedChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(3)
		place := make(chan struct{})
		f.hold = func(id string) <-chan struct{} {
			if id == "s.1" {
				return place
			}
			return nil
		}
		next := func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
			return func(yield func(*chatv1.GenerateResponse, error) bool) {
				for out, err := range f.generate(ctx, req) {
					if !yield(out, err) {
						return
					}
				}
				if req.GetStreamId() == "s.0" {
					close(place)
				}
			}
		}
		texts, _, ends, _, err := read(t.Context(), merged(next), asking(2))
		if err != nil || ends != 2 || texts[0] != texts[1] {
			t.Error(texts, ends, err)
		}
	})
}

func TestReaderThatLeavesStopsAllChoices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		items := 0
		for range merged(f.generate)(t.Context(), asking(3)) {
			if items++; items == 10 {
				break
			}
		}
		if f.running() != 0 || len(f.causes) != 3 || !errors.Is(f.causes["s.2"], streamerr.Completed) {
			t.Error(f.running(), f.causes)
		}
	})
}

func TestStopReachesAllChoicesWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		defer ctl.Release()
		time.AfterFunc(20*time.Millisecond, func() { ctl.Stop(streamerr.New(streamerr.UserStop, "enough")) })
		_, _, _, _, err := read(ctx, merged(f.generate), asking(3))
		if !errors.Is(err, streamerr.UserStop) || f.running() != 0 {
			t.Error(err, f.running())
		}
		for id, cause := range f.causes {
			if !errors.Is(cause, streamerr.UserStop) {
				t.Error(id, cause)
			}
		}
	})
}

func TestPanicOfAChoiceIsTheStreams(t *testing.T) {
	f := newFake(0)
	f.fail = func(id string, word int) error {
		if id == "s.1" && word == 2 {
			panic("a bug")
		}
		return nil
	}
	defer func() {
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "a bug") || f.running() != 0 {
			t.Errorf("%.40v, %d run", v, f.running())
		}
	}()
	_, _, _, _, err := read(t.Context(), merged(f.generate), asking(2))
	t.Error("no panic, but", err)
}

// A choice that breaks the contract of engines must not leave its reader waiting.
func TestChoiceWithoutAnEndingEndsTheStream(t *testing.T) {
	for name, words := range map[string]int{"at once": 0, "behind some words": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(20)
				next := func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
					if req.GetStreamId() != "s.1" {
						return f.generate(ctx, req)
					}
					return func(yield func(*chatv1.GenerateResponse, error) bool) {
						time.Sleep(time.Millisecond) // the other choice has started
						left := words
						for out, err := range f.generate(ctx, req) {
							if left--; left < 0 || !yield(out, err) {
								return
							}
						}
					}
				}
				_, _, ends, end, err := read(t.Context(), merged(next), asking(2))
				e := streamerr.As(err)
				if e.Reason != streamerr.Internal || !strings.Contains(e.Message, "choice 1") || ends != 0 || end != nil || f.running() != 0 {
					t.Errorf("%v, %d choices ended, %v, %d run; want INTERNAL that names choice 1", err, ends, end, f.running())
				}
				if !errors.Is(f.causes["s.0"], streamerr.Internal) {
					t.Errorf("the other choice was stopped with %v, want INTERNAL", f.causes["s.0"])
				}
			})
		})
	}
}

func TestTooManyChoicesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		req   *chatv1.ChatRequest
		param string
	}{
		"n":                  {asking(17), "n"},
		"largest n":          {asking(1<<32 - 1), "n"},
		"prompts":            {asking(1, make([]string, 65)...), "prompt"},
		"product":            {asking(13, make([]string, 5)...), "n"},
		"id":                 {&chatv1.ChatRequest{StreamId: strings.Repeat("x", 127), N: 2}, "stream_id"},
		"most":               {asking(16, make([]string, 4)...), ""},
		"one with a long id": {&chatv1.ChatRequest{StreamId: strings.Repeat("x", 128)}, ""},
	} {
		err := choices.Check(c.req)
		if (err == nil) != (c.param == "") || err != nil && streamerr.As(err).Param != c.param {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func BenchmarkChoices(b *testing.B) {
	delta := func() *chatv1.GenerateResponse {
		return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: "x", Tokens: 1}}}
	}
	endless := func(context.Context, *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
		return func(yield func(*chatv1.GenerateResponse, error) bool) {
			for yield(delta(), nil) {
			}
		}
	}
	for _, n := range []uint32{1, 4} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			left := b.N
			for range merged(endless)(b.Context(), asking(n)) {
				if left--; left <= 0 {
					return
				}
			}
		})
	}
}

// The reader's loop body runs on the goroutines of the choices. A panic there must reach the
// reader's goroutine.
func TestPanicOfTheReaderEndsAllChoices(t *testing.T) {
	f := newFake(0)
	defer func() {
		if v := recover(); !strings.Contains(fmt.Sprint(v), "the reader's bug") || f.running() != 0 {
			t.Errorf("%.40v, %d run", v, f.running())
		}
	}()
	items := 0
	for range merged(f.generate)(t.Context(), asking(3)) {
		if items++; items == 5 {
			panic("the reader's bug")
		}
	}
}

func TestExitOfTheReaderEndsAllChoices(t *testing.T) {
	f := newFake(0)
	exited := true
	var reading sync.WaitGroup
	reading.Go(func() {
		for range merged(f.generate)(t.Context(), asking(3)) {
			runtime.Goexit()
		}
		exited = false
	})
	reading.Wait()
	if !exited || f.running() != 0 {
		t.Errorf("exited: %t, %d run", exited, f.running())
	}
}

package besidetest

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// An Engine is an engine under test.
type Engine interface {
	Generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error]
	Watch(ctx context.Context, changed func(healthy bool))
	Upstream() *beside.Upstream
	Load() *llmv1.Load
}

// A Subject is an engine under test and the service that it calls.
type Subject struct {
	Dialect Dialect
	New     func(beside.Options) (Engine, error)
}

// Watched starts an engine on a server, and returns the engine and the changes of its health.
func (s *Subject) Watched(t testing.TB, addr string) (e Engine, health chan bool) {
	t.Helper()
	e, err := s.New(beside.Options{Upstream: addr, MaxRunning: 32, ProbeInterval: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	health = make(chan bool, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { e.Watch(ctx, func(healthy bool) { health <- healthy }) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return e, health
}

// Start starts an engine on a server that plays script, and returns when the engine has found the
// server healthy.
func (s *Subject) Start(t testing.TB, script Script) (Engine, *Server) {
	t.Helper()
	server := Start(t, s.Dialect, script, "")
	e, health := s.Watched(t, server.Addr)
	await(t, health, true)
	return e, server
}

func await(t testing.TB, health chan bool, want bool) {
	t.Helper()
	if got := polltest.Receive(t, "the health changes", health); got != want {
		t.Fatalf("health is %t", got)
	}
}

// Ask returns a request for limit tokens.
func Ask(limit uint32) *workerv1.TokenRequest {
	return &workerv1.TokenRequest{Prompt: []uint32{10, 11, 12}, Sampling: &llmv1.Sampling{MaxTokens: proto.Uint32(limit)}}
}

// A Result is the outcome of a stream.
type Result struct {
	Cached  []int // for each report of cached tokens: the number of tokens so far, and the value
	Started *llmv1.Started
	Tokens  []uint32
	End     *llmv1.End
	Err     error
	Record  *streamv1.Record
}

// Read reads a stream to its end and calls each after each item.
func Read(ctx context.Context, e Engine, req *workerv1.TokenRequest, each func(*Result)) *Result {
	var kept ledger.Ledger
	record := kept.Open("id", "worker", "")
	ctl := stream.ControlOf(ctx)
	if ctl == nil {
		ctx, ctl = stream.WithControl(ctx, polltest.Patience) // the server may take its time
		defer ctl.Release()
	}
	ctl.OnStop(func(cause error) { record.Stopping(streamerr.As(cause)) })
	r := new(Result)
	for out, err := range e.Generate(ledger.With(ctx, record), req) {
		if r.Record = record.Proto(); err != nil {
			r.Err = err
			break
		}
		if started := out.GetStarted(); started != nil {
			r.Started = started
		}
		if t := out.GetTokens(); t != nil && t.CachedTokens != nil {
			r.Cached = append(r.Cached, len(r.Tokens), int(t.GetCachedTokens()))
		}
		r.Tokens = append(r.Tokens, out.GetTokens().GetIds()...)
		r.End = out.GetEnd()
		if each != nil {
			each(r)
		}
	}
	return r
}

// Run tests an engine against everything that a server can do.
func Run(t *testing.T, s Subject) {
	t.Run("contract", func(t *testing.T) {
		streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
			e, server := s.Start(t, Count)
			return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
				Sequence: e.Generate,
				Short:    func() *workerv1.TokenRequest { return Ask(5) },
				Long:     func() *workerv1.TokenRequest { return Ask(2000) },
				Bad:      func() *workerv1.TokenRequest { return new(workerv1.TokenRequest) },
				Live:     func() int { return int(server.Live.Load()) + int(e.Load().GetRunning()) },
			}
		})
	})
	if s.Dialect.HTTP == nil {
		t.Run("every misdeed has its ending", func(t *testing.T) { s.Misdeeds(t, misdeeds) })
	}
	if s.Dialect.HTTP != nil {
		t.Run("connections are used again", s.reuse)
	}
	t.Run("answer", s.answer)
	t.Run("adapters", s.adapters)
	t.Run("images", s.images)
	t.Run("logprobs", s.logprobs)
	t.Run("load", s.load)
	t.Run("guides", s.guides)
	t.Run("ends of answers", s.ends)
	t.Run("stop", s.stop)
	t.Run("health", s.health)
}

// Misdeeds tests an engine against servers that misbehave.
func (s *Subject) Misdeeds(t *testing.T, misdeeds map[string]Misdeed) {
	t.Helper()
	for name, test := range misdeeds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, server := s.Start(t, test.Script)
			read := sync.OnceFunc(func() { close(server.read) })
			r := Read(t.Context(), e, Ask(50), func(r *Result) {
				if len(r.Tokens) > 0 {
					read()
				}
			})
			got := streamerr.As(r.Err)
			if r.Err == nil || got.Reason != test.Reason || got.Path.String() != "engine" || !strings.Contains(got.Message, test.Says) {
				t.Errorf("got %v, want %s with %q", r.Err, test.Reason, test.Says)
			}
			if len(r.Tokens) != test.Tokens || int(r.Record.GetTokensIn()) != test.Tokens || r.End != nil {
				t.Error(r.Tokens, r.Record, r.End)
			}
			if wait := got.Reason == streamerr.Overloaded || got.Reason == streamerr.Unavailable; wait != (got.RetryAfter > 0) {
				t.Error("callers get a Retry-After of", got.RetryAfter)
			}
			if len(got.Message) > 700 || strings.Contains(got.Message, "127.0.0.1") {
				t.Error(got.Message)
			}
		})
	}
}

// reuse tests that an answer leaves its connection to a later request.
func (s *Subject) reuse(t *testing.T) {
	e, server := s.Start(t, Count)
	polltest.Eventually(t, "two answers have had the same connection", func() bool {
		r := Read(t.Context(), e, Ask(3), nil)
		return r.Err != nil || server.Posted.Twice()
	})
	if r := Read(t.Context(), e, Ask(3), nil); r.Err != nil {
		t.Error(r.Err)
	}
}

// adapters tests that a request's adapter is named to the service, or refused before anything is sent.
func (s *Subject) adapters(t *testing.T) {
	e, server := s.Start(t, Count)
	req := Ask(1)
	req.Adapter = "legal"
	r := Read(t.Context(), e, req, nil)
	if e.Upstream().Capabilities.GetAdapters() {
		if asked := server.Asked(); r.Err != nil || len(asked) != 1 || asked[0].Adapter != "legal" {
			t.Errorf("%v; the service was asked %+v", r.Err, asked)
		}
		req.Adapter = "medical" // which the service does not list
		r := Read(t.Context(), e, req, nil)
		if e := streamerr.As(r.Err); e.Reason != streamerr.NotFound || e.Param != "model" || e.Code != streamerr.CodeModelNotFound || len(server.Asked()) != 1 {
			t.Errorf("%v; the service was asked %+v", r.Err, server.Asked())
		}
		return
	}
	if streamerr.As(r.Err).Reason != streamerr.Invalid || streamerr.As(r.Err).Param != "model" || len(server.Asked()) != 0 {
		t.Errorf("%v; the service was asked %+v", r.Err, server.Asked())
	}
}

// images tests that images are refused before anything is sent to a service that takes none.
func (s *Subject) images(t *testing.T) {
	e, server := s.Start(t, Count)
	req := Ask(1)
	req.Images = []*llmv1.Image{{Data: []byte("an image"), MediaType: "image/png"}}
	if err := streamerr.As(Read(t.Context(), e, req, nil).Err); err.Reason != streamerr.Invalid || err.Param != "images" ||
		!strings.Contains(err.Message, e.Upstream().Capabilities.GetUpstream()) || len(server.Asked()) != 0 {
		t.Errorf("%v; the service was asked %+v", err, server.Asked())
	}
}

func (s *Subject) answer(t *testing.T) {
	e, server := s.Start(t, Count)
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := streamtrace.WithParent(stream.WithID(t.Context(), "one"), streamtrace.ParseParent(traceparent, ""))
	r := Read(ctx, e, Ask(4), nil)
	if r.Err != nil || !slices.Equal(r.Tokens, Tokens(Ask(1).GetPrompt(), 4)) || r.End.GetFinish() != llmv1.Finish_FINISH_LENGTH || r.End.GetPath()[0] != "engine" {
		t.Fatal(r)
	}
	if r.Started.GetModel() != "tiny" || r.Started.GetPromptTokens() != 3 || r.Started.GetStreamId() != "one" {
		t.Error(r.Started)
	}
	if u := r.End.GetUsage(); u.GetPromptTokens() != 3 || u.GetCompletionTokens() != 4 || u.GetCachedTokens() != 2 || r.Record.GetTokensIn() != 4 {
		t.Error(u, r.Record)
	}
	if !slices.Equal(r.Cached, []int{0, 2}) {
		t.Errorf("the cached tokens were not reported with the first tokens alone: %v", r.Cached)
	}
	asked := server.Asked()[0]
	if got := strings.Join(asked.Metadata.Get("traceparent"), " "); got != traceparent {
		t.Errorf("the server got the traceparent %q", got)
	}
	if !asked.Stream || !slices.Equal(asked.Prompt, []uint32{10, 11, 12}) || len(server.AbortedIDs()) != 0 {
		t.Error(asked, server.AbortedIDs())
	}
	// Each id is new, begins with the stream's id, and is not a prefix of another id.
	Read(ctx, e, Ask(1), nil)
	again := server.Asked()[1]
	if s.Dialect.HangsUp {
		asked.ID, again.ID = "one-0123456789abcdef", "one-fedcba9876543210"
	}
	if !strings.HasPrefix(asked.ID, "one-") || again.ID == asked.ID || len(again.ID) != len(asked.ID) || len(asked.ID) < len("one-")+16 {
		t.Error(asked.ID, again.ID)
	}
	// An answer that another server began.
	req := Ask(7)
	req.Prompt, req.Generated = []uint32{10, 11, 12, 500, 501}, 2
	least := slices.Contains(e.Upstream().Capabilities.GetSampling(), "min_tokens")
	if least {
		req.Sampling.MinTokens = proto.Uint32(3)
	}
	r = Read(ctx, e, req, nil)
	asked = server.Asked()[2]
	if u := r.End.GetUsage(); r.Err != nil || len(r.Tokens) != 5 || u.GetPromptTokens() != 3 || u.GetCompletionTokens() != 7 ||
		asked.Sampling["max_tokens"] != uint64(5) || least && asked.Sampling["min_tokens"] != uint64(1) {
		t.Error(r, asked)
	}
}

func (s *Subject) ends(t *testing.T) {
	for name, test := range map[string]struct {
		chunks   [][]uint32
		finish   string
		sampling *llmv1.Sampling
		want     []uint32
		count    uint32
	}{
		"end of sequence":           {[][]uint32{{100}, {EOS}}, "stop", nil, []uint32{100}, 2},
		"in one chunk":              {[][]uint32{{100, EOS}}, "stop", nil, []uint32{100}, 2},
		"an empty chunk":            {[][]uint32{{}, {100}, {}, {EOS}}, "stop", nil, []uint32{100}, 2},
		"stop token":                {[][]uint32{{100, 200}}, "stop", &llmv1.Sampling{StopTokenIds: []uint32{200}}, []uint32{100}, 2},
		"followed by others":        {[][]uint32{{100, 200}, {101}}, "length", &llmv1.Sampling{StopTokenIds: []uint32{200}}, []uint32{100, 200, 101}, 3},
		"last, and only by chance":  {[][]uint32{{100, 200}}, "length", &llmv1.Sampling{StopTokenIds: []uint32{200}}, []uint32{100, 200}, 2},
		"ignored":                   {[][]uint32{{100, EOS}, {101}}, "length", &llmv1.Sampling{IgnoreEos: true}, []uint32{100, EOS, 101}, 3},
		"nothing but":               {[][]uint32{{EOS}}, "stop", nil, nil, 1},
		"nothing but an ending":     {nil, "length", nil, nil, 0},
		"several tokens in a chunk": {[][]uint32{{1, 3, 4}, {5, 6}}, "length", nil, []uint32{1, 3, 4, 5, 6}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := s.Start(t, func(a *Answer) error {
				for _, ids := range test.chunks {
					a.Chunk(ids...)
				}
				a.Complete(test.finish)
				return nil
			})
			if ids := test.sampling.GetStopTokenIds(); len(ids) > 0 && !slices.Contains(e.Upstream().Capabilities.GetSampling(), "stop_token_ids") {
				return // such a request is refused
			}
			r := Read(t.Context(), e, &workerv1.TokenRequest{Prompt: []uint32{10}, Sampling: test.sampling}, nil)
			if r.Err != nil || !slices.Equal(r.Tokens, test.want) || r.End.GetUsage().GetCompletionTokens() != test.count || r.Record.GetTokensIn() != test.count {
				t.Error(r.Tokens, r.End, r.Err, r.Record)
			}
			if all := slices.Concat(test.chunks...); (r.End.MatchedToken != nil) != (test.finish == "stop") || test.finish == "stop" && r.End.GetMatchedToken() != all[len(all)-1] {
				t.Errorf("the ending has the matched token %v", r.End.MatchedToken)
			}
		})
	}
}

func (s *Subject) stop(t *testing.T) {
	t.Parallel()
	silent := func(a *Answer) error {
		a.Wait()
		return a.Aborted()
	}
	for name, test := range map[string]struct {
		script    Script
		deaf      bool
		begun     bool // a token has been read before the stop
		confirmed bool
	}{
		"in mid-answer":                 {func(a *Answer) error { a.Chunk(7); return silent(a) }, false, true, true},
		"before it has said anything":   {silent, false, false, true},
		"that the server does not hear": {func(a *Answer) error { a.Chunk(7); return silent(a) }, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{})
			e, server := s.Start(t, func(a *Answer) error {
				close(asked)
				return test.script(a)
			})
			server.Deaf.Store(test.deaf)
			grace := polltest.Patience
			if test.deaf {
				grace = time.Millisecond
			}
			ctx, ctl := stream.WithControl(t.Context(), grace)
			defer ctl.Release()
			var wg sync.WaitGroup
			begun := make(chan struct{})
			wg.Go(func() {
				if <-asked; test.begun {
					<-begun
				}
				ctl.Stop(streamerr.ClientGone)
			})
			r := Read(ctx, e, Ask(100), func(r *Result) {
				if len(r.Tokens) == 1 {
					close(begun)
				}
			})
			wg.Wait()
			unknown := s.Dialect.HangsUp && !test.begun // the server may not have taken the request
			if confirmed := r.Record.GetStopConfirmed() != nil; !errors.Is(r.Err, streamerr.ClientGone) || confirmed != test.confirmed && !unknown {
				t.Errorf("%v, confirmed at %v", r.Err, r.Record.GetStopConfirmed())
			}
			if got := server.AbortedIDs(); !test.deaf && !s.Dialect.HangsUp && (len(got) != 1 || got[0] != server.Asked()[0].ID) {
				t.Errorf("aborted are %v", got)
			}
			polltest.Eventually(t, "the server has ended the answer", func() bool { return server.Live.Load() == 0 })
		})
	}
}

func (s *Subject) health(t *testing.T) {
	t.Parallel()
	server := Start(t, s.Dialect, Count, "")
	e, health := s.Watched(t, server.Addr)
	await(t, health, true)
	up := e.Upstream()
	if up.Context != Context || up.Vocab != Vocab || !slices.Equal(up.EOS, []uint32{EOS}) || up.Name != "tiny" || !up.Resumes {
		t.Error(up)
	}
	looks := server.Looks.Load()
	polltest.Eventually(t, "it is asked again", func() bool { return server.Looks.Load() > looks })
	if e.Upstream() != up {
		t.Error("nothing has changed, and it is another upstream")
	}
	if s.Dialect.Embed == nil { // a service with vectors is healthy with a model that only embeds
		server.NoModel.Store(true)
		await(t, health, false)
		server.NoModel.Store(false)
		await(t, health, true)
	}
	server.Stop()
	if r := Read(t.Context(), e, Ask(5), nil); !errors.Is(r.Err, streamerr.Unavailable) || r.Started != nil {
		t.Error(r.Err)
	}
	await(t, health, false)
	if r := Read(t.Context(), e, Ask(5), nil); !errors.Is(r.Err, streamerr.Unavailable) || streamerr.As(r.Err).RetryAfter == 0 {
		t.Error(r.Err)
	}
	again := Start(t, s.Dialect, Count, server.Addr)
	await(t, health, true)
	if r := Read(t.Context(), e, Ask(5), nil); r.Err != nil || len(again.Asked()) != 1 {
		t.Error(r.Err)
	}
}

// Everything returns sampling options in which every field named in fields is set.
func Everything(fields []string) *llmv1.Sampling {
	s := &llmv1.Sampling{
		Temperature: proto.Float32(0.5), TopP: proto.Float32(0.9), TopK: proto.Uint32(40), MinP: proto.Float32(0.05),
		RepetitionPenalty: proto.Float32(1.1), FrequencyPenalty: proto.Float32(0.2), PresencePenalty: proto.Float32(0.3),
		LogitBias: map[uint32]float32{7: -1.5}, Seed: proto.Uint64(1<<40 + 5), MinTokens: proto.Uint32(2), MaxTokens: proto.Uint32(9),
		IgnoreEos: true, StopTokenIds: []uint32{8},
	}
	m := s.ProtoReflect()
	all := m.Descriptor().Fields()
	for i := range all.Len() {
		if field := all.Get(i); !slices.Contains(fields, string(field.Name())) {
			m.Clear(field)
		}
	}
	return s
}

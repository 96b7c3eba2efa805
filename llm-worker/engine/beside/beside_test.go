package beside_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A server answers with the tokens 100, 101 and so on, one a millisecond.
type server struct {
	taking  time.Duration // until it accepts a request
	refuses error         // its answer after that time; nil if it accepts
	dies    int           // number of tokens after which it dies; 0 means never
	live    atomic.Int32
}

// A call is one of its answers.
type call struct {
	server *server
	answer beside.Answer
	left   int
	stop   func()
	gone   <-chan struct{}
}

func (s *server) upstream() *beside.Upstream {
	up := &beside.Upstream{Name: "served", Context: 4096, Vocab: 10_000, EOS: []uint32{2}, Resumes: true,
		Capabilities: &llmv1.Capabilities{Sampling: sample.Fields(), Upstream: "a test's"}}
	up.Ask = func(_ context.Context, req *workerv1.TokenRequest) (beside.Call, error) {
		if err := up.Check(req); err != nil {
			return nil, err
		}
		gone, stop := context.WithCancel(context.Background())
		return &call{server: s, answer: beside.NewAnswer(req, up.Vocab, up.EOS), left: int(up.Rest(req).GetMaxTokens()), stop: stop, gone: gone.Done()}, nil
	}
	return up
}

func (c *call) wait(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-c.gone:
		return beside.Lost(nil, "was stopped")
	}
}

func (c *call) Open(context.Context) error {
	c.server.live.Add(1)
	if err := c.wait(c.server.taking); err != nil {
		c.server.live.Add(-1)
		return err
	}
	go func() {
		<-c.gone
		c.server.live.Add(-1)
	}()
	return c.server.refuses
}

func (c *call) Next() ([]uint32, *llmv1.End, error) {
	if err := c.wait(time.Millisecond); err != nil {
		return nil, nil, err
	}
	n := c.answer.Count()
	switch {
	case c.server.dies > 0 && n == c.server.dies:
		return nil, nil, beside.Lost(nil, "died")
	case n == c.left:
		ids, end := c.answer.End(llmv1.Finish_FINISH_LENGTH, beside.Usage{})
		return ids, end, nil
	}
	ids, err := c.answer.Take([]uint32{uint32(100 + n)})
	return ids, nil, err
}

func (c *call) Stop() bool {
	c.stop()
	return true
}

// watched returns an engine that is watched until end is called, and the changes of its health.
func watched(look beside.Look, opts beside.Options) (e *beside.Engine, health chan bool, end func()) {
	e = beside.New(opts, look)
	health = make(chan bool, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { e.Watch(ctx, func(healthy bool) { health <- healthy }) })
	return e, health, func() { cancel(); wg.Wait() }
}

func engineOf(t *testing.T, s *server) *beside.Engine {
	t.Helper()
	up := s.upstream()
	e, health, end := watched(func(context.Context, *beside.Upstream, bool) (*beside.Upstream, error) { return up, nil }, beside.Options{MaxRunning: 20})
	t.Cleanup(end)
	<-health
	return e
}

func request(limit uint32) *workerv1.TokenRequest {
	return &workerv1.TokenRequest{Prompt: []uint32{10, 11, 12}, Sampling: &llmv1.Sampling{MaxTokens: proto.Uint32(limit)}}
}

func TestEngineKeepsTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
		s := new(server)
		return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
			Sequence: engineOf(t, s).Generate,
			Short:    func() *workerv1.TokenRequest { return request(3) },
			Long:     func() *workerv1.TokenRequest { return request(4000) },
			Bad:      func() *workerv1.TokenRequest { return new(workerv1.TokenRequest) },
			Live:     func() int { return int(s.live.Load()) },
		}
	})
}

// An outcome is the result of a stream, with the times of its start and its end.
type outcome struct {
	started, ended time.Duration
	tokens         []uint32
	end            *llmv1.End
	err            error
}

func read(e *beside.Engine, req *workerv1.TokenRequest) (r outcome) {
	begun := time.Now()
	for out, err := range e.Generate(stream.WithID(context.Background(), "id"), req) {
		if out.GetStarted() != nil {
			r.started = time.Since(begun)
		}
		r.tokens = append(r.tokens, out.GetTokens().GetIds()...)
		r.end, r.err = out.GetEnd(), err
	}
	r.ended = time.Since(begun)
	return r
}

func TestServerThatIsSilentForASecondHasAcceptedTheRequest(t *testing.T) {
	late := beside.Fail(streamerr.Overloaded, nil, "later")
	for name, test := range map[string]struct {
		server  *server
		started time.Duration
		err     error
	}{
		"it answers soon":   {&server{taking: 300 * time.Millisecond}, 300 * time.Millisecond, nil},
		"it answers late":   {&server{taking: 5 * time.Second}, time.Second, nil},
		"it refuses soon":   {&server{taking: 300 * time.Millisecond, refuses: late}, 0, streamerr.Overloaded},
		"it refuses it yet": {&server{taking: 5 * time.Second, refuses: late}, time.Second, streamerr.Overloaded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := read(engineOf(t, test.server), request(2))
				if r.started != test.started || !errors.Is(r.err, test.err) {
					t.Error(r.started, r.err)
				}
			})
		})
	}
}

func TestAnswerFromAnotherWorkerIsContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req := request(7)
		req.Prompt, req.Generated = []uint32{10, 11, 12, 500, 501}, 2
		r := read(engineOf(t, new(server)), req)
		if u := r.end.GetUsage(); len(r.tokens) != 5 || u.GetPromptTokens() != 3 || u.GetCompletionTokens() != 7 {
			t.Error(r)
		}
		for param, change := range map[string]func(*workerv1.TokenRequest){
			"all of the prompt":  func(r *workerv1.TokenRequest) { r.Generated = 5 },
			"all that is wanted": func(r *workerv1.TokenRequest) { r.Sampling.MaxTokens = proto.Uint32(2) },
		} {
			bad := proto.CloneOf(req)
			change(bad)
			if e := streamerr.As(read(engineOf(t, new(server)), bad).err); e.Reason != streamerr.Invalid || e.Param != "generated" {
				t.Errorf("%s: %v", param, e)
			}
		}
	})
}

func TestRestReducesLimitsByTheAnswerSoFar(t *testing.T) {
	up := new(server).upstream()
	req := request(10)
	req.Sampling.MinTokens = proto.Uint32(4)
	for begun, want := range map[uint32][2]uint32{0: {10, 4}, 1: {9, 3}, 6: {4, 0}} {
		req.Generated = begun
		if s := up.Rest(req); s.GetMaxTokens() != want[0] || s.GetMinTokens() != want[1] {
			t.Errorf("after %d: %v", begun, s)
		}
	}
	if s := up.Rest(&workerv1.TokenRequest{Prompt: make([]uint32, 4000)}); s.GetMaxTokens() != 96 {
		t.Error(s)
	}
	if req.GetSampling().GetMaxTokens() != 10 {
		t.Error("the request was changed")
	}
}

func TestFieldsThatTheServerWouldIgnoreAreRefused(t *testing.T) {
	up := new(server).upstream()
	up.Capabilities.Sampling = slices.DeleteFunc(sample.Fields(), func(field string) bool { return field == "seed" })
	req := request(3)
	req.Sampling.Seed = proto.Uint64(7)
	if e := streamerr.As(up.Check(req)); e.Reason != streamerr.Invalid || e.Param != "sampling.seed" || !strings.Contains(e.Message, "a test's") {
		t.Error(e)
	}
}

func TestLostStreamsCountOnceAndStopsAreConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engineOf(t, &server{dies: 3})
		if r := read(e, request(9)); !errors.Is(r.err, streamerr.PeerLost) || len(r.tokens) != 3 {
			t.Error(r)
		}
		var kept ledger.Ledger
		record := kept.Open("id", "worker", "")
		ctx, ctl := stream.WithControl(ledger.With(t.Context(), record), time.Minute)
		defer ctl.Release()
		ctl.OnStop(func(cause error) { record.Stopping(streamerr.As(cause)) })
		var last error
		for out, err := range engineOf(t, new(server)).Generate(ctx, request(9)) {
			if last = err; len(out.GetTokens().GetIds()) > 0 {
				ctl.Stop(streamerr.UserStop)
			}
		}
		if !errors.Is(last, streamerr.UserStop) || record.Proto().GetStopConfirmed() == nil {
			t.Error(last, record.Proto())
		}
	})
}

func TestServerIsUnhealthyAfterThreeLateProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := new(server).upstream()
		var fault atomic.Pointer[error] // nil while the server is healthy
		failing := func(err error) { fault.Store(&err) }
		var log strings.Builder
		_, health, end := watched(func(context.Context, *beside.Upstream, bool) (*beside.Upstream, error) {
			if err := fault.Load(); err != nil {
				return nil, *err
			}
			return up, nil
		}, beside.Options{MaxRunning: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
		seconds := func(n int) { time.Sleep(time.Duration(n)*time.Second + time.Millisecond); synctest.Wait() }
		seconds(0)
		failing(context.DeadlineExceeded)
		seconds(2)
		fault.Store(nil)
		seconds(1)
		failing(context.DeadlineExceeded)
		seconds(2)
		if len(health) != 1 {
			t.Error("unhealthy after two late answers in a row")
		}
		seconds(3)
		if <-health; len(health) != 1 || <-health {
			t.Error("healthy after three late answers in a row")
		}
		failing(beside.Fail(streamerr.Unavailable, nil, "refused"))
		seconds(5)
		end()
		if n := strings.Count(log.String(), "msg="); n != 3 { // healthy, not healthy, refused
			t.Errorf("%d lines: %s", n, log.String())
		}
	})
}

func TestProblemSaysWhyTheServerCannotBeUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := new(server).upstream()
		var fault atomic.Pointer[error]
		failing := func(err error) { fault.Store(&err) }
		failing(beside.Fail(streamerr.Unavailable, nil, "the server that generates answered with status 503: the model loads"))
		var log strings.Builder
		e, _, end := watched(func(context.Context, *beside.Upstream, bool) (*beside.Upstream, error) {
			if err := fault.Load(); *err != nil {
				return nil, *err
			}
			return up, nil
		}, beside.Options{MaxRunning: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
		second := func() { time.Sleep(time.Second); synctest.Wait() }
		refused := func() (text string) {
			for _, err := range e.Generate(t.Context(), &workerv1.TokenRequest{Prompt: []uint32{1}}) {
				if err != nil {
					text = streamerr.As(err).Text()
				}
			}
			return text
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if want := "the server that generates answered with status 503: the model loads"; e.Problem() != want || refused() != want {
			t.Errorf("%q, but a stream gets %q", e.Problem(), refused())
		}
		failing(errors.New("there is no model"))
		second()
		if want := "the server that generates cannot be used: there is no model"; e.Problem() != want || refused() != want {
			t.Errorf("%q, but a stream gets %q", e.Problem(), refused())
		}
		failing(beside.Unavailable(&net.OpError{Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}))
		second()
		if want := "the server that generates refuses connections: nothing listens at its address"; e.Problem() != want {
			t.Errorf("%q", e.Problem())
		}
		for i := range 40 { // the same failure, in other words each time
			failing(beside.Fail(streamerr.Unavailable, nil, "the server that generates answered with status 503: request %d", i))
			second()
		}
		failing(nil)
		second()
		if e.Problem() != "" {
			t.Errorf("%q", e.Problem())
		}
		end()
		if n := strings.Count(log.String(), "level=WARN"); n != 6 { // 503, no model, refused, 503, and 503 in other words after 10 s and 30 s
			t.Errorf("%d lines: %s", n, log.String())
		}
	})
}

func TestFailedTrialsAreRepeatedWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trial beside.Trial
		failing := errors.New("no token")
		var tried []time.Duration
		begun := time.Now()
		pass := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				err := trial.Do(func() error { tried = append(tried, time.Since(begun)); return failing })
				if !errors.Is(err, failing) {
					t.Fatal(err)
				}
			}
		}
		pass(10 * time.Minute)
		if n := len(tried); n < 22 || n > 32 { // 1, 2, 4, 8, 16, and each 23 to 31 s
			t.Errorf("%d trials in ten minutes: %v", n, tried)
		}
		for i := 2; i < len(tried); i++ {
			if pause := tried[i] - tried[i-1]; pause > 31*time.Second {
				t.Errorf("trial %d comes %v after the previous trial", i, pause)
			}
		}
		n := len(tried)
		trial.Reset()
		pass(time.Second)
		if len(tried) != n+1 {
			t.Error("a server that answers again is not tried at once")
		}
	})
}

// A prefillCall is the call of a prompt that is read when Next is called, at which time the stream is
// stopped.
type prefillCall struct{ stop func() }

func (prefillCall) Open(context.Context) error { return nil }
func (prefillCall) Stop() bool                 { return true }
func (prefillCall) Handover() []byte           { return []byte("{}") }

func (c prefillCall) Next() ([]uint32, *llmv1.End, error) {
	c.stop()
	return nil, &llmv1.End{}, nil
}

// The server keeps a prompt that it has read until another server fetches it. So the parameters of the
// handover are passed on although the stream was stopped.
func TestStopDoesNotDropAHandover(t *testing.T) {
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	up := new(server).upstream()
	up.Ask = func(context.Context, *workerv1.TokenRequest) (beside.Call, error) {
		return prefillCall{func() { ctl.Stop(streamerr.New(streamerr.ClientGone, "gone")) }}, nil
	}
	e, health, end := watched(func(context.Context, *beside.Upstream, bool) (*beside.Upstream, error) { return up, nil }, beside.Options{MaxRunning: 1})
	defer end()
	<-health
	var parameters string
	var ending error
	for out, err := range e.Generate(ctx, request(1)) {
		parameters += string(out.GetHandover().GetParameters())
		ending = err
	}
	if parameters != "{}" || !errors.Is(ending, streamerr.ClientGone) {
		t.Errorf("%q, %v", parameters, ending)
	}
}

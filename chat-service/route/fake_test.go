package route

import (
	"context"
	"errors"
	"hash/fnv"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/route/policy"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const contextLength = 64

// A fake is a worker that draws each token from all ids before it and the seed, one token per
// millisecond. A hidden token ends the answer at the length stop.
type fake struct {
	name string
	stop int // tokens of the whole answer, including the hidden token; 0 means no end
	// fault is called with -1 before Started, and with the number of tokens so far before each
	// token. errHang makes the worker silent until the stream is stopped, and errDeaf makes it
	// ignore even the stop for a second.
	fault func(tokens int) error
	role  llmv1.Role
	// over is the parameters of its handovers if it is a prefill worker. Each prefill takes ten
	// milliseconds.
	over string
	// reached is called with the steps of a stream: called, asked, started, and of a prefill also read,
	// handed over and ended. nil means no calls.
	reached func(step string)

	mu     sync.Mutex // guards the following fields
	live   int
	asked  []*workerv1.TokenRequest
	causes []error // causes of the stopped streams
	last   error   // the cause of the last stopped stream, set when that stream was over
}

var (
	errHang = errors.New("hang")
	errDeaf = errors.New("deaf")
)

func lostBy(f *fake) error {
	return &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(f.name), Message: "gone"}
}

func (f *fake) generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		f.reach("called")
		if cause := stream.Cause(ctx); cause != nil {
			yield(nil, cause)
			return
		}
		f.mu.Lock()
		f.live++
		f.asked = append(f.asked, req)
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			f.live--
			f.last = stream.Cause(ctx)
			f.mu.Unlock()
		}()
		f.answer(ctx, req, yield)
	}
}

func (f *fake) answer(ctx context.Context, req *workerv1.TokenRequest, yield func(*workerv1.GenerateResponse, error) bool) {
	stopping := stream.Stopping(ctx)
	// may reports whether the answer continues after this many tokens.
	may := func(tokens int) bool {
		var err error
		if f.fault != nil {
			err = f.fault(tokens)
		}
		if err == nil {
			return true
		}
		if hangs := errors.Is(err, errHang); hangs || errors.Is(err, errDeaf) {
			<-stopping
			if !hangs {
				<-time.After(time.Second)
			}
			f.stopped(ctx)
			err = stream.Cause(ctx)
		}
		yield(nil, err)
		return false
	}
	if len(req.GetPrompt()) == 0 {
		yield(nil, streamerr.InvalidParam("prompt", "empty"))
		return
	}
	f.reach("asked")
	begun := int(req.GetGenerated())
	asked := len(req.GetPrompt()) - begun
	if !may(-1) || !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{PromptTokens: uint32(asked)}}}, nil) {
		return
	}
	f.reach("started")
	if req.GetKvTransfer().GetAsk() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-stopping:
			f.stopped(ctx)
			yield(nil, stream.Cause(ctx))
			return
		}
		f.reach("read")
		if !may(0) || f.over != "" && !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Handover{Handover: &workerv1.Handover{Parameters: []byte(f.over)}}}, nil) {
			return
		}
		f.reach("handed over")
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Usage: &llmv1.Usage{PromptTokens: uint32(asked), CachedTokens: new(uint32(1))},
		}}}, nil)
		f.reach("ended")
		return
	}
	limit := contextLength - asked
	if s := req.GetSampling(); s != nil && s.MaxTokens != nil {
		limit = min(limit, int(*s.MaxTokens))
	}
	end := func(finish llmv1.Finish, tokens int) {
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"engine", f.name}, Finish: finish,
			Usage: &llmv1.Usage{PromptTokens: uint32(asked), CompletionTokens: uint32(tokens)},
		}}}, nil)
	}
	ids := req.GetPrompt()
	for n := begun; ; n++ {
		if !may(n) {
			return
		}
		if n >= limit {
			end(llmv1.Finish_FINISH_LENGTH, n)
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-stopping:
			f.stopped(ctx)
			yield(nil, stream.Cause(ctx))
			return
		}
		if n+1 == f.stop {
			end(llmv1.Finish_FINISH_STOP, n+1)
			return
		}
		token := draw(ids, req.GetSampling().GetSeed())
		ids = append(ids[:len(ids):len(ids)], token)
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{token}}}}, nil) {
			return
		}
	}
}

func (f *fake) reach(step string) {
	if f.reached != nil {
		f.reached(step)
	}
}

func (f *fake) stopped(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.causes = append(f.causes, stream.Cause(ctx))
}

// left returns the cause for which the last stream was stopped.
func (f *fake) left() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *fake) running() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live
}

func draw(ids []uint32, seed uint64) uint32 {
	h := fnv.New32a()
	for _, id := range append(ids[:len(ids):len(ids)], uint32(seed), uint32(seed>>32)) {
		h.Write([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)})
	}
	return h.Sum32()
}

// info returns the WorkerInfo of a healthy worker.
func info(name string) *llmv1.WorkerInfo {
	return &llmv1.WorkerInfo{Instance: name, Model: "m", ContextLength: contextLength, Continues: true}
}

// poolOf returns a pool of healthy workers.
func poolOf(t testing.TB, opts Options, fakes ...*fake) *Pool {
	t.Helper()
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.Self = "chat"
	p := New(opts)
	var members []*fleet.Worker
	for _, f := range fakes {
		w := fleet.Pretended(f.name, f.generate)
		said := info(f.name)
		said.Role = f.role
		w.Say(said)
		members = append(members, w)
	}
	p.Pretend(members...)
	return p
}

// inOrder always takes the first candidate, which makes tests easy to read.
func inOrder(policy.Request, []policy.Candidate) int { return 0 }

// good reports whether a worker is in good standing.
func good(w *fleet.Worker) bool { return w.Snapshot(time.Now()).Standing == fleet.Good }

// take chooses a worker for a stream, with a context of any size.
func take(p *Pool, req *workerv1.TokenRequest) *attempt {
	a, _ := p.take(wish{req: req}, 0)
	return a
}

var errGone = streamerr.New(streamerr.ClientGone, "gone")

// controlled returns the context of a stream that can be stopped.
func controlled(t *testing.T) (context.Context, *stream.Control) {
	return stream.WithControl(t.Context(), time.Second)
}

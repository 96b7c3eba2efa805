package link_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

var (
	seeds = flag.Int("seeds", 200, "the number of worlds that TestWorlds plays")
	seed  = flag.Uint64("seed", 1, "the seed of the first world")
)

// A random is a source of random numbers for several goroutines.
type random struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (r *random) below(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.IntN(n)
}

// A pipe is one direction of a connection in memory. Bytes arrive in order, each write after a
// delay.
type pipe struct {
	random *random

	mu      sync.Mutex // guards the following fields
	writes  []write
	waiting int // bytes in writes
	last    time.Time
	left    int // bytes until the connection is cut; -1 means never
	closed  bool
	changed chan struct{} // closed, and replaced, after each change
}

type write struct {
	due   time.Time
	bytes []byte
}

func newPipe(r *random) *pipe { return &pipe{random: r, left: -1, changed: make(chan struct{})} }

// change wakes all waiting goroutines. The caller holds mu.
func (p *pipe) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pipe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		p.change()
	}
}

// With pipeBytes bytes on the way, a writer waits.
const pipeBytes = 64 << 10

func (p *pipe) write(b []byte) (cut bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && p.waiting >= pipeBytes {
		changed := p.changed
		p.mu.Unlock()
		<-changed
		p.mu.Lock()
	}
	if p.closed {
		return false, net.ErrClosed
	}
	if p.left >= 0 {
		if cut = len(b) >= p.left; cut {
			b = b[:p.left]
		}
		p.left -= len(b)
	}
	due := time.Now().Add(time.Duration(p.random.below(3000)) * time.Microsecond)
	if due.Before(p.last) {
		due = p.last
	}
	p.last = due
	p.writes = append(p.writes, write{due, slices.Clone(b)})
	p.waiting += len(b)
	p.change()
	return cut, nil
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		var late <-chan time.Time
		if len(p.writes) > 0 {
			first := &p.writes[0]
			wait := time.Until(first.due)
			if wait <= 0 {
				n := copy(b, first.bytes)
				if first.bytes = first.bytes[n:]; len(first.bytes) == 0 {
					p.writes = p.writes[1:]
				}
				p.waiting -= n
				p.change()
				return n, nil
			}
			late = time.After(wait)
		} else if p.closed {
			return 0, io.EOF
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-late:
		case <-changed:
		}
		p.mu.Lock()
	}
}

// An end is one end of a connection in memory.
type end struct {
	net.Conn // nil
	in, out  *pipe
}

func (e end) Read(b []byte) (int, error) { return e.in.read(b) }

func (e end) Write(b []byte) (int, error) {
	cut, err := e.out.write(b)
	if err != nil {
		return 0, err
	}
	if cut {
		_ = e.Close()
	}
	return len(b), nil
}

func (e end) Close() error {
	e.in.close()
	e.out.close()
	return nil
}

func (e end) SetDeadline(at time.Time) error {
	if !at.IsZero() && at.Before(time.Now()) {
		return e.Close()
	}
	return nil
}

func (e end) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// A port is a listener in memory.
type port struct {
	net.Listener // nil
	accepted     chan net.Conn
	done         chan struct{}
	once         sync.Once
}

func newPort() *port { return &port{accepted: make(chan net.Conn), done: make(chan struct{})} }

func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *port) Addr() net.Addr { return &net.TCPAddr{} }

// A world has a caller, a relay and a worker, with links between them.
type world struct {
	t      *testing.T
	seed   uint64
	random *random

	relay, worker *rpc.Hop
	caller        stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]
	servers       []*link.Server
	conns         []*link.ClientConn
	watch         watcher
	playing       sync.WaitGroup

	mu      sync.Mutex // guards the following fields
	endings map[string]int
}

func (w *world) fail(format string, args ...any) {
	w.t.Errorf("seed %d: %s", w.seed, fmt.Sprintf(format, args...))
}

// serve serves engine on a hop, and returns a client with links to it. It cuts some of the links
// after a number of bytes.
func (w *world) serve(h *rpc.Hop, engine stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]) workerv1.WorkerClient {
	options := mux.Options{Window: 1 << (10 + w.random.below(7))}
	s := link.NewServer(link.Options{Mux: options})
	workerv1.RegisterWorkerServer(s, &worker{hop: h, engine: engine})
	p := newPort()
	w.playing.Go(func() { _ = s.Serve(p) })
	cc := link.NewClient("peer:1", link.Options{Links: 1, Mux: options, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := newPipe(w.random), newPipe(w.random)
		if w.random.below(3) == 0 {
			cut := []*pipe{near, far}[w.random.below(2)]
			cut.left = 1 + w.random.below(8000)
		}
		select {
		case p.accepted <- end{in: far, out: near}:
			return end{in: near, out: far}, nil
		case <-p.done:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	w.servers, w.conns = append(w.servers, s), append(w.conns, cc)
	return workerv1.NewWorkerClient(cc)
}

// A watcher is the Observer of the relay.
type watcher struct {
	observer.Nobody
	mu    sync.Mutex
	flows []*watch
}

func (w *watcher) Begin(context.Context, observer.Beginning) observer.Flow {
	f := &watch{}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flows = append(w.flows, f)
	return f
}

// A watch is the Flow of a stream of the relay.
type watch struct {
	observer.Nobody
	mu          sync.Mutex
	kinds       []observer.Kind
	ended, told int
	gone        int
	closed      bool
	late        int // events after Close
}

func (f *watch) Note(e observer.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kinds = append(f.kinds, e.Kind)
	switch e.Kind {
	case observer.Ended:
		f.ended++
	case observer.EndingSent:
		f.told++
	case observer.CallerGone:
		f.gone++
	default:
	}
	if f.closed && e.Kind != observer.Unreceived && e.Kind != observer.Consumed && e.Kind != observer.CalleeGone {
		f.late++
	}
}

func (f *watch) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// reasons are the reasons for which a stream of a world may end.
var reasons = []streamerr.Reason{streamerr.Completed, streamerr.UserStop, streamerr.Draining, streamerr.PeerLost, streamerr.PeerReset}

// play runs one stream of the caller, and checks the items of its reader.
func (w *world) play(id string) {
	items, width := 1+w.random.below(40), 1+w.random.below(3)*3000
	stopAt, leaveAt, slow := -1, -1, w.random.below(4) == 0
	switch w.random.below(4) {
	case 0:
		items, stopAt = 1<<30, w.random.below(20)
	case 1:
		items, leaveAt = 1<<30, 1+w.random.below(20)
	}
	prompt := make([]uint32, 2+w.random.below(3)*15_000)
	prompt[0], prompt[1] = uint32(items), uint32(width)
	ctx, ctl := stream.WithControl(context.Background(), rpc.DefaultGrace)
	defer ctl.Release()
	if w.random.below(2) == 0 {
		ctx = loop.With(ctx, &loop.Carrier{})
	}
	if stopAt >= 0 {
		stop := time.AfterFunc(time.Duration(stopAt)*time.Millisecond, func() { ctl.Stop(streamerr.New(streamerr.UserStop, "enough")) })
		defer stop.Stop()
	}
	n, endings := 0, 0
	var last error
	for out, err := range w.caller(ctx, &workerv1.TokenRequest{StreamId: id, Prompt: prompt}) {
		if endings > 0 {
			w.fail("%s: something follows the ending", id)
		}
		switch {
		case err != nil:
			endings++
			last = err
		case out.GetEnd() != nil:
			endings++
			if n != items {
				w.fail("%s: %d of %d items, and an End", id, n, items)
			}
		default:
			if ids := out.GetTokens().GetIds(); len(ids) != width || ids[0] != uint32(n) || ids[width-1] != uint32(n) {
				w.fail("%s: item %d is wrong", id, n)
			}
			n++
		}
		if n == leaveAt {
			break
		}
		if slow && n%8 == 0 {
			loop.Of(ctx).Wait()
			time.Sleep(time.Duration(w.random.below(400)) * time.Millisecond)
		}
	}
	if left := n == leaveAt; left != (endings == 0) {
		w.fail("%s: %d endings", id, endings)
	}
	w.mu.Lock()
	switch {
	case endings == 0:
		w.endings["left"]++
	case last == nil:
		w.endings["completed"]++
	default:
		w.endings[streamerr.As(last).Reason.String()]++
	}
	w.mu.Unlock()
	if last != nil && !slices.Contains(reasons, streamerr.As(last).Reason) {
		w.fail("%s: %v", id, last)
	}
}

func (w *world) run() {
	log := slog.New(slog.DiscardHandler)
	w.worker = &rpc.Hop{Name: "worker", Log: log, Observer: &ledger.Ledger{}}
	w.relay = &rpc.Hop{Name: "relay", Log: log, Observer: &w.watch}
	below := w.serve(w.worker, steady)
	w.caller = rpc.Dial("caller", "relay", w.serve(w.relay, rpc.Dial("relay", "worker", below.Generate, methods.Worker)).Generate, methods.Worker)
	streams := 1 + w.random.below(5)
	var ids []string
	var readers sync.WaitGroup
	for i := range streams {
		id := fmt.Sprintf("stream-%d", i)
		ids = append(ids, id)
		readers.Go(func() {
			time.Sleep(time.Duration(w.random.below(10)) * time.Millisecond)
			w.play(id)
		})
	}
	if w.random.below(3) == 0 { // a hop shuts down: it sends GOAWAY, and stops streams that do not end in time
		which := w.random.below(2)
		hop, server := []*rpc.Hop{w.worker, w.relay}[which], w.servers[which]
		readers.Go(func() {
			time.Sleep(time.Duration(w.random.below(30)) * time.Millisecond)
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+w.random.below(50))*time.Millisecond)
			defer cancel()
			hop.Drain(ctx, time.Minute)
			server.Drain(ctx)
		})
	}
	readers.Wait()
	time.Sleep(time.Minute)
	for _, h := range []*rpc.Hop{w.relay, w.worker} {
		if n := h.Live.Len(); n > 0 {
			w.fail("%d streams of %s are live", n, h.Name)
		}
	}
	for _, id := range ids {
		if r := ledger.At(w.worker).Get(id); r != nil && (r.GetState() != streamv1.State_STATE_ENDED || !slices.Contains(reasons, streamerr.Reason(r.GetReason()))) {
			w.fail("%s: the worker's record is %v, %v", id, r.GetState(), r.GetReason())
		}
	}
	for i, f := range w.watch.flows {
		f.mu.Lock()
		if f.ended != 1 || f.told > 1 || f.gone > 1 || f.told+f.gone > 1 || !f.closed || f.late > 0 {
			w.fail("flow %d of the relay: ended %d times, told %d times, gone %d times, closed %t, %d late: %v", i, f.ended, f.told, f.gone, f.closed, f.late, f.kinds)
		}
		f.mu.Unlock()
	}
	for i := len(w.conns) - 1; i >= 0; i-- {
		_ = w.conns[i].Close()
		w.servers[i].Stop()
	}
	w.playing.Wait()
}

// TestWorlds plays seeded worlds in virtual time: streams of a caller, through a relay, from a
// worker, over links with small windows and delays. Streams are stopped, left, and read slowly;
// connections are cut after any byte; hops shut down. Each stream has one ending for its reader, on
// each hop, and for the relay's caller, and no stream remains.
func TestWorlds(t *testing.T) {
	endings := map[string]int{}
	for n := range uint64(*seeds) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, seed: *seed + n, random: &random{r: rand.New(rand.NewPCG(*seed+n, 2))}, endings: endings}
			w.run()
		})
		if t.Failed() {
			return
		}
	}
	t.Log(endings)
	if len(endings) < 5 {
		t.Errorf("the worlds reached only %v", endings)
	}
}

// steady is count with a pause of a millisecond between two items.
func steady(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		for out, err := range count(ctx, req) {
			select {
			case <-time.After(time.Millisecond):
			case <-stream.Stopping(ctx):
			}
			if !yield(out, err) {
				return
			}
		}
	}
}

package rpc_test

import (
	"context"
	"io"
	"iter"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// A tracedPath is an edge without HTTP and two services below it. All three keep traces.
type tracedPath struct {
	edge, chat, worker *rpc.Hop
	below              engine        // the edge's
	kill               func()        // breaks all connections to the worker
	release            chan struct{} // closed by play; for engines that ignore a stop until then
}

// newTracedPath connects the edge with transport above, and the worker with transport below.
func newTracedPath(t *testing.T, above, below transport, leaf func(*tracedPath) engine, set func(*tracedPath)) *tracedPath {
	t.Helper()
	tracer := &streamtrace.Tracer{Messages: 2}
	var toWorker engine
	p := &tracedPath{release: make(chan struct{})}
	worker, edge := patient(newService("worker", leaf(p))), patient(newService("edge", nil))
	chat := patient(newService("chat", func(ctx context.Context, req *workerv1.TokenRequest, to stream.Reader[*workerv1.GenerateResponse]) {
		toWorker(ctx, req, to)
	}))
	for _, svc := range []*service{worker, chat, edge} {
		ledger.At(svc.hop).Traces = tracer
	}
	p.edge, p.chat, p.worker = edge.hop, chat.hop, worker.hop
	if set != nil {
		set(p)
	}
	at := below.serve(t, worker)
	if below.name != "in process" {
		at, p.kill = relayTo(t, at)
	}
	toWorker = engineAt(below.dial(t, at), "chat", "worker")
	p.below = engineAt(above.dial(t, above.serve(t, chat)), "edge", "chat")
	return p
}

// relayTo forwards bytes to addr until kill is called.
func relayTo(t *testing.T, addr string) (at string, kill func()) {
	t.Helper()
	ln := listen(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", addr)
			if err != nil {
				_ = in.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, in, out)
			mu.Unlock()
			for from, to := range map[net.Conn]net.Conn{in: out, out: in} {
				wg.Go(func() {
					_, _ = io.Copy(to, from)
					_ = to.Close()
				})
			}
		}
	})
	kill = func() {
		_ = ln.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close()
		}
	}
	t.Cleanup(func() { kill(); wg.Wait() })
	return ln.Addr().String(), kill
}

// states returns the state events that a hop has kept, one line per event.
func states(h *rpc.Hop, id string) (lines []string) {
	for _, e := range ledger.At(h).Get(id).GetEvents() {
		kind := streamtrace.Kind(e.GetKind())
		if kind == streamtrace.Send || kind == streamtrace.Recv {
			continue
		}
		parts := []string{kind.String(), streamtrace.Side(e.GetSide()).String(), e.GetCode()}
		if e.GetReason() != streamv1.Reason_REASON_UNSPECIFIED {
			parts = append(parts, streamerr.Reason(e.GetReason()).String(), strings.Join(e.GetPath(), ">"))
		}
		lines = append(lines, strings.Join(strings.Fields(strings.Join(parts, " ")), " "))
	}
	return lines
}

// play runs a stream at the edge. It calls during at the second item; during stops the stream or
// breaks a connection. Before the worker's stream may end, its hop must have the event until, unless
// until is empty.
func (p *tracedPath) play(t *testing.T, n uint32, during func(ctl *stream.Control), until string) (id string) {
	t.Helper()
	ctx, end, err := p.edge.Begin(t.Context(), &id, "", "", func() *streamerr.Error { return streamerr.New(streamerr.Internal, "unused") })
	if err != nil {
		t.Fatal(err)
	}
	items := 0
	rpc.Drive(ctx, p.edge, methods.Worker, p.below, &workerv1.TokenRequest{StreamId: id, Prompt: []uint32{n}}, func(*workerv1.GenerateResponse) error {
		if items++; items == 2 {
			during(stream.ControlOf(ctx))
		}
		return nil
	})
	end()
	if until != "" {
		polltest.Eventually(t, "the worker has "+until, func() bool { return slices.Contains(states(p.worker, id), until) })
	}
	close(p.release)
	awaitNoLive(t, p.edge, p.chat, p.worker) // a hop whose peer has gone ends by itself
	return id
}

// toTheEnd is the engine of a counter.
func toTheEnd(*tracedPath) engine { return newCounter().generate }

// stalling yields two tokens and then no more. It ends when it is stopped.
func stalling(*tracedPath) engine { return stallingUntil(nil) }

// ignoring is stalling that ignores a stop until the path's release.
func ignoring(p *tracedPath) engine { return stallingUntil(p.release) }

func stallingUntil(release <-chan struct{}) engine {
	return stream.Push(func(ctx context.Context, _ *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for range 2 {
				if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{1}}}}, nil) {
					return
				}
			}
			<-stream.Stopping(ctx)
			if release != nil {
				<-release
			}
			yield(nil, stream.Cause(ctx))
		}
	})
}

// TestEventsOfStateTellEveryEnding checks the events that each hop has kept, in order.
func TestEventsOfStateTellEveryEnding(t *testing.T) {
	called := []string{"recv_header up", "send_header down", "recv_header down"}
	answered := append(slices.Clone(called), "send_header up") // the edge has no HTTP here, so it sends nothing
	leaf := []string{"recv_header up", "send_header up"}
	for _, c := range []struct {
		name   string
		engine func(*tracedPath) engine
		n      uint32
		during func(*tracedPath, *stream.Control)
		set    func(*tracedPath) // sets timers of the hops
		until  string            // for play

		edge, chat, worker []string // after the headers; nil is not checked
	}{
		{
			name: "completed", engine: toTheEnd, n: 5,
			edge:   []string{"recv_trailer down OK completed engine>worker>chat"},
			chat:   []string{"recv_trailer down OK completed engine>worker", "send_trailer up OK completed engine>worker>chat"},
			worker: []string{"send_trailer up OK completed engine>worker"},
		},
		{
			name: "stopped", engine: toTheEnd, n: 1 << 30,
			during: func(_ *tracedPath, ctl *stream.Control) {
				ctl.Stop(&streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath("client")})
			},
			edge: []string{"recv_rst up STOP user_stop client", "send_rst down STOP user_stop client>edge", "recv_trailer down Canceled user_stop client>edge>chat"},
			chat: []string{
				"recv_rst up STOP user_stop client>edge", "send_rst down STOP user_stop client>edge>chat",
				"recv_trailer down Canceled user_stop client>edge>chat>worker", "send_trailer up Canceled user_stop client>edge>chat",
			},
			worker: []string{"recv_rst up STOP user_stop client>edge>chat", "send_trailer up Canceled user_stop client>edge>chat>worker"},
		},
		{
			name: "killed peer", engine: toTheEnd, n: 1 << 30,
			during: func(p *tracedPath, _ *stream.Control) { p.kill() },
			edge:   []string{"recv_trailer down Unavailable peer_lost worker>chat"},
			chat:   []string{"recv_rst down LOST peer_lost worker", "send_trailer up Unavailable peer_lost worker>chat"},
			worker: []string{"recv_rst up LOST peer_lost chat"},
		},
		{
			name: "deadline", engine: toTheEnd, n: 1 << 30,
			set:  func(p *tracedPath) { p.chat.Timers.Deadline = 500 * time.Millisecond },
			edge: []string{"recv_trailer down DeadlineExceeded deadline chat"},
			chat: []string{
				"send_rst down STOP deadline chat", "recv_trailer down DeadlineExceeded deadline chat>worker", "send_trailer up DeadlineExceeded deadline chat",
			},
			worker: []string{"recv_rst up STOP deadline chat", "send_trailer up DeadlineExceeded deadline chat>worker"},
		},
		{
			name: "stall", engine: stalling,
			set:    func(p *tracedPath) { p.worker.Timers.Stall = 50 * time.Millisecond },
			edge:   []string{"recv_trailer down DeadlineExceeded deadline worker>chat"},
			chat:   []string{"recv_trailer down DeadlineExceeded deadline worker", "send_trailer up DeadlineExceeded deadline worker>chat"},
			worker: []string{"send_trailer up DeadlineExceeded deadline worker"},
		},
		{
			name: "reset after the grace", engine: ignoring, until: "recv_rst up CANCEL user_stop client>edge>chat",
			set: func(p *tracedPath) { p.edge.Grace = rpc.DefaultGrace },
			during: func(_ *tracedPath, ctl *stream.Control) {
				ctl.Stop(&streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath("client")})
			},
			worker: []string{"recv_rst up STOP user_stop client>edge>chat", "recv_rst up CANCEL user_stop client>edge>chat"},
		},
	} {
		grpcs, kitexes := transport{"grpc-go", serveGRPC, dialGRPC}, transport{"kitex", serveKitex, dialKitex}
		links := transport{"link", serveLink, dialLink}
		here := transport{"in process", serveHere, dialHere}
		play := func(t *testing.T, above, below transport) {
			p := newTracedPath(t, above, below, c.engine, c.set)
			id := p.play(t, c.n, func(ctl *stream.Control) {
				if c.during != nil {
					c.during(p, ctl)
				}
			}, c.until)
			for _, hop := range []struct {
				hop           *rpc.Hop
				headers, want []string
			}{{p.edge, called, c.edge}, {p.chat, answered, c.chat}, {p.worker, leaf, c.worker}} {
				if hop.want == nil {
					continue
				}
				want := slices.Concat(hop.headers, hop.want)
				if got := states(hop.hop, id); !slices.Equal(got, want) {
					t.Errorf("%s has the events\n%s\nwant\n%s", hop.hop.Name, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		}
		if c.set != nil && c.until == "" { // what a timer does depends on no transport
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { play(t, here, here) })
			})
			continue
		}
		// One after the other: a Kitex connection that breaks has been seen to break another
		// connection of the same process.
		for _, tr := range []struct{ above, below transport }{{grpcs, grpcs}, {kitexes, kitexes}, {links, links}, {here, grpcs}} {
			t.Run(c.name+" "+tr.above.name, func(t *testing.T) { play(t, tr.above, tr.below) })
		}
	}
}

// TestTraceGoesThroughAllHops: all hops have the same trace id, the first caller's if it has one.
func TestTraceGoesThroughAllHops(t *testing.T) {
	for _, tr := range transports {
		svc := newService("worker", newCounter().generate)
		ledger.At(svc.hop).Traces = &streamtrace.Tracer{Messages: 2}
		client := workerv1.NewWorkerClient(tr.dial(t, tr.serve(t, svc)))
		const id = "0af7651916cd43dd8448eb211c80319c"
		for parent, want := range map[string]bool{"00-" + id + "-b7ad6b7169203331-01": true, "00-" + id + "-0-01": false, "": false} {
			ctx := t.Context()
			if parent != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, streamtrace.Traceparent, parent)
			}
			st, err := client.Generate(ctx)
			if err != nil {
				t.Fatal(err)
			}
			stream := &workerv1.TokenRequest{StreamId: "id", Prompt: []uint32{2}}
			if err := st.Send(methods.Worker.Open(stream)); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = st.Recv()
			}
			r := ledger.At(svc.hop).Get("id")
			if got := r.GetTraceId(); (got == id) != want || len(got) != len(id) {
				t.Errorf("%s: traceparent %q became %q", tr.name, parent, got)
			}
			if r.GetMessagesSent() != 3 || len(r.GetEvents()) != 6 {
				t.Errorf("%s: %v", tr.name, r)
			}
		}
	}
}

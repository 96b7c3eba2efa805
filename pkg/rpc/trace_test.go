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
	"time"

	"google.golang.org/grpc/metadata"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
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
	below              engine // the edge's
	kill               func() // breaks all connections to the worker
}

// newTracedPath connects the edge with transport above, and the worker with transport below, which
// uses sockets.
func newTracedPath(t *testing.T, above, below transport, leaf engine, timers func(*tracedPath)) *tracedPath {
	t.Helper()
	tracer := &streamtrace.Tracer{Messages: 2}
	var toWorker engine
	worker, edge := newService("worker", leaf), newService("edge", nil)
	chat := newService("chat", func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return toWorker(ctx, req)
	})
	for _, svc := range []*service{worker, chat, edge} {
		ledger.At(svc.hop).Traces = tracer
	}
	p := &tracedPath{edge: edge.hop, chat: chat.hop, worker: worker.hop}
	if timers != nil {
		timers(p)
	}
	at, kill := relayTo(t, below.serve(t, worker))
	p.kill = kill
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

// play runs a stream at the edge. It calls during at the second item; during stops the stream,
// breaks a connection, or waits.
func (p *tracedPath) play(t *testing.T, n uint32, during func(ctl *stream.Control)) (id string) {
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
	for _, h := range []*rpc.Hop{p.edge, p.chat, p.worker} { // a hop whose peer has gone ends by itself
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		h.Live.Drain(ctx, streamerr.New(streamerr.Internal, "did not end"))
		cancel()
	}
	return id
}

// stalling yields one token and then no more. It ignores a stop for deaf.
func stalling(deaf time.Duration) engine {
	return func(ctx context.Context, _ *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for range 2 {
				if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{1}}}}, nil) {
					return
				}
			}
			<-stream.Stopping(ctx)
			time.Sleep(deaf)
			yield(nil, stream.Cause(ctx))
		}
	}
}

// outran reports whether a timer fired too early on a busy machine: the grace ended before the hop
// below could answer, or the deadline passed before the first message. The test then repeats the
// stream.
func (p *tracedPath) outran(id string) bool {
	for _, h := range []*rpc.Hop{p.edge, p.chat} {
		cut := func(line string) bool { return strings.HasPrefix(line, "send_rst down CANCEL") }
		if kept := states(h, id); slices.ContainsFunc(kept, cut) || !slices.Contains(kept, "recv_header down") {
			return true
		}
	}
	return false
}

// TestEventsOfStateTellEveryEnding checks the events that each hop has kept, in order.
func TestEventsOfStateTellEveryEnding(t *testing.T) {
	called := []string{"recv_header up", "send_header down", "recv_header down"}
	answered := append(slices.Clone(called), "send_header up") // the edge has no HTTP here, so it sends nothing
	leaf := []string{"recv_header up", "send_header up"}
	for _, c := range []struct {
		name   string
		engine engine
		n      uint32
		during func(*tracedPath, *stream.Control)
		timers func(*tracedPath)

		edge, chat, worker []string // after the headers; nil is not checked
	}{
		{
			name: "completed", engine: newCounter().generate, n: 5,
			edge:   []string{"recv_trailer down OK completed engine>worker>chat"},
			chat:   []string{"recv_trailer down OK completed engine>worker", "send_trailer up OK completed engine>worker>chat"},
			worker: []string{"send_trailer up OK completed engine>worker"},
		},
		{
			name: "stopped", engine: newCounter().generate, n: 1 << 30,
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
			name: "killed peer", engine: newCounter().generate, n: 1 << 30,
			during: func(p *tracedPath, _ *stream.Control) { p.kill() },
			edge:   []string{"recv_trailer down Unavailable peer_lost worker>chat"},
			chat:   []string{"recv_rst down LOST peer_lost worker", "send_trailer up Unavailable peer_lost worker>chat"},
			worker: []string{"recv_rst up LOST peer_lost chat"},
		},
		{
			name: "deadline", engine: newCounter().generate, n: 1 << 30,
			timers: func(p *tracedPath) { p.chat.Timers.Deadline = 500 * time.Millisecond }, // long enough for the headers
			edge:   []string{"recv_trailer down DeadlineExceeded deadline chat"},
			chat: []string{
				"send_rst down STOP deadline chat", "recv_trailer down DeadlineExceeded deadline chat>worker", "send_trailer up DeadlineExceeded deadline chat",
			},
			worker: []string{"recv_rst up STOP deadline chat", "send_trailer up DeadlineExceeded deadline chat>worker"},
		},
		{
			name: "stall", engine: stalling(0),
			timers: func(p *tracedPath) { p.worker.Timers.Stall = 50 * time.Millisecond },
			edge:   []string{"recv_trailer down DeadlineExceeded deadline worker>chat"},
			chat:   []string{"recv_trailer down DeadlineExceeded deadline worker", "send_trailer up DeadlineExceeded deadline worker>chat"},
			worker: []string{"send_trailer up DeadlineExceeded deadline worker"},
		},
		{
			name: "reset after the grace", engine: stalling(4 * rpc.DefaultGrace),
			during: func(_ *tracedPath, ctl *stream.Control) {
				ctl.Stop(&streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath("client")})
			},
			worker: []string{"recv_rst up STOP user_stop client>edge>chat", "recv_rst up CANCEL user_stop client>edge>chat"},
		},
	} {
		grpcs, kitexes := transport{"grpc-go", serveGRPC, dialGRPC}, transport{"kitex", serveKitex, dialKitex}
		links := transport{"link", serveLink, dialLink}
		for _, tr := range []struct{ above, below transport }{{grpcs, grpcs}, {kitexes, kitexes}, {links, links}, {transport{"in process", serveHere, dialHere}, grpcs}} {
			t.Run(c.name+" "+tr.above.name, func(t *testing.T) {
				// One after the other: a Kitex connection that breaks has been seen to break
				// another connection of the same process.
				var p *tracedPath
				var id string
				again := true
				for tries := 0; again && tries < 20; tries++ {
					p = newTracedPath(t, tr.above, tr.below, c.engine, c.timers)
					id = p.play(t, c.n, func(ctl *stream.Control) {
						if c.during != nil {
							c.during(p, ctl)
						}
					})
					again = c.edge != nil && p.outran(id)
				}
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
			})
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

// Command faulty is the services, and the gateway, with faults built in, for tests: `faulty chat-service --listen ...`. A stream whose
// id begins with fault:HOP:KIND: meets that fault on that hop, after three items; all others are served as ever.
package main

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/gateway"
	"github.com/whence-dev/whence/internal/observe"
	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: faulty api-service|chat-service|llm-worker|gateway FLAGS")
		os.Exit(2)
	}
	service := os.Args[1]
	var watched observe.Config
	serve := func(listen string, flags func(*flag.FlagSet), run func(context.Context, net.Listener, *slog.Logger, observe.Outputs) error) {
		process.Subcommand(service, os.Args[2:], listen, func(fs *flag.FlagSet) { flags(fs); watched.Flags(fs) }, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
			edge.LogTo(process.Lines(log, "cloudwego"))
			return watched.Run(service, log, func(out observe.Outputs) error { return run(ctx, ln, log, out) })
		})
	}
	switch service {
	case "api-service":
		c := edge.Config{Stage: stage(service, edge.Stage(nil)), StagePasses: true}
		serve(edge.DefaultListen, c.Flags, func(ctx context.Context, ln net.Listener, log *slog.Logger, out observe.Outputs) error {
			c.Metrics, c.Traces, c.Usage = out.Metrics, out.Traces, out.Usage
			return edge.Run(ctx, c, ln, log)
		})
	case "chat-service":
		c := server.Config{Stage: stage(service, server.Stage(nil))}
		serve(server.DefaultListen, c.Flags, func(ctx context.Context, ln net.Listener, log *slog.Logger, out observe.Outputs) error {
			c.Metrics, c.Traces, c.Usage = out.Metrics, out.Traces, out.Usage
			return server.Run(ctx, c, ln, log)
		})
	case "llm-worker":
		c := worker.Config{Stage: stage(service, worker.Stage(nil))}
		serve(worker.DefaultListen, c.Flags, func(ctx context.Context, ln net.Listener, log *slog.Logger, out observe.Outputs) error {
			c.Metrics, c.Traces, c.Usage = out.Metrics, out.Traces, out.Usage
			return worker.Run(ctx, c, ln, log)
		})
	case "gateway":
		var c gateway.Config
		c.Edge.Stage, c.Chat.Stage = stage("api-service", edge.Stage(nil)), stage("chat-service", server.Stage(nil))
		c.Edge.StagePasses = true
		serve(edge.DefaultListen, c.Flags, func(ctx context.Context, ln net.Listener, log *slog.Logger, out observe.Outputs) error {
			c.Edge.Metrics, c.Chat.Metrics = out.Metrics, out.Metrics
			c.Edge.Traces, c.Chat.Traces = out.Traces, out.Traces
			c.Edge.Usage, c.Chat.Usage = out.Usage, out.Usage
			return gateway.Run(ctx, c, ln, log)
		})
	default:
		fmt.Fprintf(os.Stderr, "faulty: there is no %q\n", service)
		os.Exit(2)
	}
}

// stage returns the faults of a hop, as a stage of the same type as its second argument.
func stage[Req, Item any](hop string, _ stream.Stage[Req, Item, Req, Item]) stream.Stage[Req, Item, Req, Item] {
	return func(next stream.Engine[Req, Item]) stream.Engine[Req, Item] {
		return func(ctx context.Context, req Req) iter.Seq2[Item, error] {
			kind := faultOf(stream.ID(ctx), hop)
			if kind == "" {
				return next(ctx, req)
			}
			return func(yield func(Item, error) bool) {
				ctx, cancel := context.WithCancelCause(ctx) // as handlers do that have timers of their own
				defer cancel(nil)
				n := 0
				for item, err := range next(ctx, req) {
					if n++; n > 3 && err == nil && strike(ctx, cancel, kind, yield) {
						return
					}
					if !yield(item, err) {
						return
					}
				}
			}
		}
	}
}

// faultOf returns the fault that a stream meets on a hop, if any.
func faultOf(id, hop string) string {
	if parts := strings.Split(id, ":"); len(parts) == 4 && parts[0] == "fault" && parts[1] == hop {
		return parts[2]
	}
	return ""
}

// strike makes the fault happen, and reports whether that was the end of the stream.
func strike[Item any](ctx context.Context, cancel context.CancelCauseFunc, kind string, yield func(Item, error) bool) bool {
	var zero Item
	if kind != "wrap" {
		slog.New(slog.NewJSONHandler(os.Stderr, nil)).InfoContext(ctx, "fault", "kind", kind)
	}
	switch kind {
	case "panic":
		panic("a fault, on purpose")
	case "fail":
		yield(zero, &streamerr.Error{Reason: streamerr.EngineFailed, Path: streamerr.NewPath("engine"), Message: "a fault, on purpose"})
	case "stall": // deaf, too: only a kill wakes it
		<-ctx.Done()
		yield(zero, stream.Cause(ctx))
	case "cancel":
		cancel(streamerr.New(streamerr.OperatorStop, "the quota is used up"))
		return false
	case "wrap": // has happened: the context below is not the stream's own
		return false
	}
	return true
}

// Command faulty runs the services and the gateway with built-in faults, for tests: `faulty
// chat-service --listen ...`. A stream whose id begins with fault:HOP:KIND: has that fault on that
// hop, after three items. The fault hold keeps the handover of a prompt until the stream is stopped.
// All other streams are served normally.
package main

import (
	"context"
	"iter"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	api "github.com/whence-dev/whence/api-service/command"
	"github.com/whence-dev/whence/api-service/edge"
	chat "github.com/whence-dev/whence/chat-service/command"
	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/gateway"
	front "github.com/whence-dev/whence/gateway/command"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/cli"
	llm "github.com/whence-dev/whence/llm-worker/command"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func main() {
	var both gateway.Config
	both.Edge.Stage, both.Chat.Stage = stage("api-service", edge.Stage(nil)), stage("chat-service", server.Stage(nil))
	both.Edge.StagePasses = true
	root := &cobra.Command{Use: "faulty", Short: "Services with faults"}
	cli.Subcommands(root,
		service("api-service", api.New(&edge.Config{Stage: stage("api-service", edge.Stage(nil)), StagePasses: true})),
		service("chat-service", chat.New(&server.Config{Stage: stage("chat-service", server.Stage(nil))})),
		service("llm-worker", llm.New(&worker.Config{Stage: stage("llm-worker", worker.Stage(nil))})),
		service("gateway", front.New(&both)),
	)
	cli.Main(root)
}

// service returns the command of a service.
func service(name string, s *cli.Service) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: "Run " + name + " with faults"}
	s.Attach(cmd)
	return cmd
}

// stage returns a stage that injects the faults of a hop. The second argument determines its type.
func stage[Req, Item any](hop string, _ stream.Stage[Req, Item, Req, Item]) stream.Stage[Req, Item, Req, Item] {
	return func(next stream.Sequence[Req, Item]) stream.Sequence[Req, Item] {
		return func(ctx context.Context, req Req) iter.Seq2[Item, error] {
			kind := faultOf(stream.ID(ctx), hop)
			if kind == "" {
				return next(ctx, req)
			}
			return func(yield func(Item, error) bool) {
				ctx, cancel := context.WithCancelCause(ctx) // like handlers with their own timers
				defer cancel(nil)
				n := 0
				for item, err := range next(ctx, req) {
					if out, is := any(item).(*workerv1.GenerateResponse); is && kind == "hold" && out.GetHandover() != nil {
						slog.New(slog.NewJSONHandler(os.Stderr, nil)).InfoContext(ctx, "fault", "kind", kind)
						<-stream.Stopping(ctx)
					}
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

// faultOf returns the fault of a stream on a hop, or "".
func faultOf(id, hop string) string {
	if parts := strings.Split(id, ":"); len(parts) == 4 && parts[0] == "fault" && parts[1] == hop {
		return parts[2]
	}
	return ""
}

// strike injects the fault, and reports whether it ended the stream.
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
	case "stall": // ignores stops, too: only a kill wakes it
		<-ctx.Done()
		yield(zero, stream.Cause(ctx))
	case "cancel":
		cancel(streamerr.New(streamerr.OperatorStop, "the quota is used up"))
		return false
	case "wrap": // already done: the context below is not the stream's own
		return false
	}
	return true
}

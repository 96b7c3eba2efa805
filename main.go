// Command whence runs the whole path in one process: llm-worker, chat-service and api-service, with
// real loopback sockets between them. Each service is a command of its own, too. The subcommand
// gateway runs chat-service and api-service without sockets between them, in front of workers.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/gateway"
	"github.com/whence-dev/whence/internal/observe"
	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/drain"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/guard"
)

// A config holds the options of all three services, except for their connections.
type config struct {
	chat, worker string // listen addresses
	edge         edge.Config
	server       server.Config
	engine       worker.Config
	watched      observe.Config
	calls        guard.Limits // limits of the hops below the edge
	timers       rpc.Timers   // of the edge; the hops below keep their defaults
	grace        time.Duration
}

func (c *config) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.chat, "chat-listen", server.DefaultListen, "`host:port` of the chat-service; port 0 takes any")
	fs.StringVar(&c.worker, "worker-listen", worker.DefaultListen, "`host:port` of the llm-worker; port 0 takes any")
	fs.IntVar(&c.edge.MaxStreams, "max-streams", edge.DefaultMaxStreams, "live streams at most; further ones are refused")
	c.timers = edge.DefaultTimers
	process.TimerFlags(fs, &c.timers)
	c.calls = guard.Default
	c.calls.Flags(fs)
	process.LinkFlag(fs, &c.edge.Link)
	fs.DurationVar(&c.grace, "drain", edge.DefaultGrace, "how long live streams may finish after the first signal; a second signal ends them at once")
	c.server.ModelFlags(fs)
	c.engine.EngineFlags(fs)
	c.edge.HTTPFlags(fs)
	c.watched.Flags(fs)
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "why":
			process.Exit("whence why", why(os.Args[2:], os.Stdout))
		case "top":
			process.Exit("whence top", watch(os.Args[2:], os.Stdout))
		case "keys":
			process.Exit("whence keys", manageKeys(os.Args[2:], os.Stdout, os.Stderr))
		case "gateway":
			serveGateway(os.Args[2:])
		}
	}
	var c config
	process.Main("whence", edge.DefaultListen, c.flags, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
		edge.LogTo(process.Lines(log, "cloudwego"))
		return c.watched.Run("whence", log, func(out observe.Outputs) error {
			c.edge.Metrics, c.server.Metrics, c.engine.Metrics = out.Metrics, out.Metrics, out.Metrics
			c.edge.Traces, c.server.Traces, c.engine.Traces = out.Traces, out.Traces, out.Traces
			c.edge.Usage, c.server.Usage, c.engine.Usage = out.Usage, out.Usage, out.Usage
			return run(ctx, c, ln, log)
		})
	})
}

// run serves all three until ctx is done. They drain in the order in which requests come in, so
// that no service loses the streams of the service before it. The grace counts from the first
// signal for all three.
func run(ctx context.Context, c config, front net.Listener, log *slog.Logger) error {
	middle, err := net.Listen("tcp", c.chat)
	if err != nil {
		return err
	}
	back, err := net.Listen("tcp", c.worker)
	if err != nil {
		return err
	}
	c.edge.Name, c.edge.Chat, c.edge.Timers, c.edge.Grace = edge.DefaultName, middle.Addr().String(), c.timers, c.grace
	c.server.Name, c.server.Worker = server.DefaultName, back.Addr().String()
	c.server.MaxStreams, c.server.Timers, c.server.Grace = c.edge.MaxStreams, server.DefaultTimers, c.grace
	c.engine.Name, c.engine.Model, c.engine.ModelName = worker.DefaultName, c.server.Model, c.server.ModelName
	c.server.Calls, c.engine.Calls = c.calls, c.calls
	c.server.Link, c.engine.Link = c.edge.Link, c.edge.Link
	c.engine.Timers, c.engine.Grace = worker.DefaultTimers, c.grace

	failed, all := errgroup.WithContext(ctx) // a failure of one ends the others
	edgeDone, chatDone := make(chan struct{}), make(chan struct{})
	failed.Go(func() error {
		defer close(edgeDone)
		return edge.Run(all, c.edge, front, log)
	})
	failed.Go(func() error {
		defer close(chatDone)
		return server.Run(drain.After(all, edgeDone), c.server, middle, log)
	})
	failed.Go(func() error { return worker.Run(drain.After(all, chatDone), c.engine, back, log) })
	failed.Go(func() error {
		if ready(all, front.Addr()) {
			greet(c, front.Addr(), middle.Addr(), back.Addr())
		}
		return nil
	})
	return failed.Wait()
}

// serveGateway is the subcommand gateway.
func serveGateway(args []string) {
	var c gateway.Config
	var watched observe.Config
	process.Subcommand("whence gateway", args, edge.DefaultListen, func(fs *flag.FlagSet) { c.Flags(fs); watched.Flags(fs) }, func(ctx context.Context, ln net.Listener, log *slog.Logger) error {
		edge.LogTo(process.Lines(log, "cloudwego"))
		return watched.Run("whence-gateway", log, func(out observe.Outputs) error {
			c.Edge.Metrics, c.Chat.Metrics = out.Metrics, out.Metrics
			c.Edge.Traces, c.Chat.Traces = out.Traces, out.Traces
			c.Edge.Usage, c.Chat.Usage = out.Usage, out.Usage
			return gateway.Run(ctx, c, ln, log)
		})
	})
}

// ready waits until the whole path answers.
func ready(ctx context.Context, front net.Addr) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+front.String()+"/readyz", nil)
		if err != nil {
			return false
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				http.DefaultClient.CloseIdleConnections()
				return true
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// greet prints the next steps.
func greet(c config, front, middle, back net.Addr) {
	model := c.server.ModelID()
	fmt.Printf(`
Whence streams %[1]s on http://%[2]s: open it to chat, or paste one of these.

curl -N http://%[2]s/v1/chat/completions -H 'Content-Type: application/json' \
  -d '{"model":"%[1]s","stream":true,"temperature":0,"messages":[{"role":"user","content":"What happens when I close the tab?"}]}'

grpcurl -plaintext -d '{"chat":{"model":"%[1]s","messages":[{"role":"user","content":"What is Whence?"}],"sampling":{"temperature":0}}}' \
  %[3]s whence.chat.v1.Chat/Generate

chat-service listens on %[3]s, llm-worker on %[4]s. Ctrl-C drains.

`, model, front, middle, back)
}

package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	api "github.com/whence-dev/whence/api-service/command"
	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/gateway"
	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/flags"
	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/observe"
	"github.com/whence-dev/whence/internal/process"
	llm "github.com/whence-dev/whence/llm-worker/command"
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
	upstreams    *gateway.Upstreams // nil for one worker whose engine and files the flags name
	calls        guard.Limits       // limits of the hops below the edge
	timers       rpc.Timers         // of the edge; the hops below keep their defaults
	middle, work net.Listener       // of chat and worker; work is nil with upstreams
	grace        time.Duration
}

func (c *config) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.chat, "chat-listen", server.DefaultListen, "`host:port` of the chat-service; port 0 takes any free port")
	fs.StringVar(&c.worker, "worker-listen", worker.DefaultListen, "`host:port` of the llm-worker; port 0 takes any free port")
	process.LinkFlag(fs, &c.edge.Link)
	c.edge.TLS.Flags(fs)
	flags.Group(fs, flags.Connections)
	fs.IntVar(&c.edge.MaxStreams, "max-streams", edge.DefaultMaxStreams, "maximum live streams; further streams are refused")
	c.calls = guard.Default
	c.calls.Flags(fs)
	flags.Group(fs, flags.Limits, "max-streams", "max-calls", "max-calls-per-connection")
	c.timers = edge.DefaultTimers
	process.TimerFlags(fs, &c.timers)
	fs.DurationVar(&c.grace, "drain", edge.DefaultGrace, "how long live streams may finish after the first signal; a second signal ends them at once")
	flags.Group(fs, flags.Timeouts)
	fs.BoolVar(&c.edge.PoolMetrics, "pool-metrics", false, "serve the engine's load at /metrics of the public listener, under vLLM's names and without a key, so that the endpoint picker of a Kubernetes InferencePool can read it")
	flags.Group(fs, flags.Observability)
	c.server.ModelFlags(fs)
	c.engine.EngineFlags(fs)
	c.edge.HTTPFlags(fs)
}

// allInOne returns the service that is the whole path.
func allInOne() *cli.Service {
	var c config
	return &cli.Service{
		Name: "whence", Listen: edge.DefaultListen, Flags: c.flags, LibraryLog: edge.LogTo, Pages: c.edge.Admin.On, Check: c.check, Ports: c.ports,
		Measured: func() bool { return c.edge.PoolMetrics },
		Run: func(ctx context.Context, ln net.Listener, log *slog.Logger, out observe.Outputs) error {
			c.edge.Metrics, c.server.Metrics, c.engine.Metrics = out.Metrics, out.Metrics, out.Metrics
			c.edge.Traces, c.server.Traces, c.engine.Traces = out.Traces, out.Traces, out.Traces
			c.edge.Usage, c.server.Usage, c.engine.Usage = out.Usage, out.Usage, out.Usage
			c.engine.Progress = out.Progress
			return runAll(ctx, c, ln, log)
		},
	}
}

// share gives each service the options that the services share.
func (c *config) share() {
	c.edge.Name, c.edge.Chat, c.edge.Timers, c.edge.Grace = edge.DefaultName, edge.DefaultChat, c.timers, c.grace
	c.server.Name, c.server.Worker = server.DefaultName, server.DefaultWorker
	c.server.MaxStreams, c.server.Timers, c.server.Grace = c.edge.MaxStreams, server.DefaultTimers, c.grace
	c.engine.Name, c.engine.Model, c.engine.ModelName = worker.ServeName, c.server.Model, c.server.ModelName
	c.engine.NoDownload = c.server.NoDownload
	c.server.Calls, c.engine.Calls = c.calls, c.calls
	c.server.Link, c.engine.Link = c.edge.Link, c.edge.Link
	c.engine.Timers, c.engine.Grace = worker.DefaultTimers, c.grace
	if c.engine.Files = true; c.engine.Upstream.Upstream != "" {
		c.upstreams = gateway.NewUpstreams(c.engine, c.worker)
		c.upstreams.Serve(&c.server)
	}
}

// check reports what is wrong with c and with the files that it names.
func (c *config) check() error {
	c.share()
	if err := api.Check(&c.edge); err != nil {
		return err
	}
	if err := c.server.Check(); err != nil {
		return err
	}
	if c.upstreams != nil {
		return c.upstreams.Validate()
	}
	return llm.Check(&c.engine)
}

// ports returns the ports besides that of the edge.
func (c *config) ports() []cli.Port {
	ports := []cli.Port{{Flag: "chat-listen", Address: c.chat, Open: &c.middle}}
	if c.upstreams == nil {
		ports = append(ports, cli.Port{Flag: "worker-listen", Address: c.worker, Open: &c.work})
	}
	return ports
}

// runAll serves all three until ctx is done. They drain in the order in which requests come in, so
// that no service loses the streams of the service before it. The grace counts from the first
// signal for all three.
func runAll(ctx context.Context, c config, public net.Listener, log *slog.Logger) (err error) {
	// Once for both services that need the files.
	if c.server.Model, err = hub.Resolve(ctx, c.server.Model, hub.Options{NoDownload: c.server.NoDownload, Progress: c.engine.Progress, Log: log}); err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	c.share()
	c.edge.Chat = c.middle.Addr().String()
	work, where := c.workers(log)

	serve := c.front()
	failed, all := errgroup.WithContext(ctx) // a failure of one ends the others
	edgeDone, chatDone := make(chan struct{}), make(chan struct{})
	failed.Go(func() error {
		defer close(edgeDone)
		return serve(all, public, log)
	})
	failed.Go(func() error {
		defer close(chatDone)
		return server.Run(drain.After(all, edgeDone), c.server, c.middle, log)
	})
	failed.Go(func() error { return work(drain.After(all, chatDone)) })
	failed.Go(func() error {
		if ready(all, c.edge.TLS, public.Addr()) {
			greet(c, public.Addr(), c.middle.Addr(), where)
		}
		return nil
	})
	return failed.Wait()
}

// front returns the function that serves api-service. In front of model servers, api-service calls
// chat-service within the process, as in a gateway; with an engine of this process there are real
// connections between the services.
func (c *config) front() (serve func(context.Context, net.Listener, *slog.Logger) error) {
	if c.upstreams != nil {
		return gateway.Join(&c.edge, &c.server)
	}
	return func(ctx context.Context, public net.Listener, log *slog.Logger) error {
		return edge.Run(ctx, c.edge, public, log)
	}
}

// workers returns a function that runs the workers, and where they listen, or "" if that is not known yet.
func (c *config) workers(log *slog.Logger) (run func(context.Context) error, where string) {
	if c.upstreams != nil {
		return func(ctx context.Context) error { return c.upstreams.Run(ctx, log) }, ""
	}
	c.server.Worker = c.work.Addr().String()
	return func(ctx context.Context) error { return worker.Run(ctx, c.engine, c.work, log) }, c.server.Worker
}

// ready waits until the whole path answers. It sends no secret, so it accepts any certificate: that of
// --tls-cert is rarely made out to the address that the process listens on.
func ready(ctx context.Context, secure connection.Certificate, at net.Addr) bool {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // as the comment says
	defer client.CloseIdleConnections()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin(secure, at)+"/readyz", nil)
		if err != nil {
			return false
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
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

// origin returns the scheme and the address of api-service.
func origin(secure connection.Certificate, at net.Addr) string {
	if secure.On() {
		return "https://" + at.String()
	}
	return "http://" + at.String()
}

// greet prints the next steps.
func greet(c config, edgeAt, middle net.Addr, workers string) {
	model := c.server.ModelID()
	if c.upstreams != nil {
		model, workers = c.upstreams.First(), strings.Join(c.upstreams.Addresses(), ", ")
	}
	console := ": open it to chat, or paste one of these"
	switch {
	case c.edge.Admin.NoConsole:
		console = ": paste one of these"
	case c.edge.Admin.On():
		console = ", and the log has the address of the console. Paste one of these"
	}
	key := ""
	if c.edge.Keys != "" {
		key = ` -H "Authorization: Bearer $WHENCE_KEY"`
	}
	fmt.Printf(`
Whence streams %[1]s on %[2]s%[5]s.

curl -N %[2]s/v1/chat/completions -H 'Content-Type: application/json'%[6]s \
  -d '{"model":"%[1]s","stream":true,"temperature":0,"messages":[{"role":"user","content":"What happens when I close the tab?"}]}'

grpcurl -plaintext -d '{"chat":{"model":"%[1]s","messages":[{"role":"user","content":"What is Whence?"}],"sampling":{"temperature":0}}}' \
  %[3]s whence.chat.v1.Chat/Generate

chat-service listens on %[3]s, llm-worker on %[4]s. Ctrl-C drains.

`, model, origin(c.edge.TLS, edgeAt), middle, workers, console, key)
}

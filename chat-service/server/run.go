package server

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/health"

	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvcache"
	"github.com/whence-dev/whence/chat-service/models"
	"github.com/whence-dev/whence/chat-service/route/policy"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/pkg/discover"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/inprocess"
	"github.com/whence-dev/whence/pkg/rpc/inspect"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/usage"
)

// A Config says what chat-service does. The zero value serves the embedded model from a worker at DefaultWorker.
type Config struct {
	Name       string // in paths and logs
	Worker     string // where llm-workers are, as discover.Parse reads it
	Policy     string // which of them gets a stream; as policy.Parse reads it; "" is policy.LeastLoaded
	KV         kvcache.Options
	Model      string // Hugging Face directory with tokenizer and template; "" is the embedded model
	ModelName  string // what requests call the model; "" is the worker's name for it
	Models     string // file with the cards of several models, instead of Model and ModelName; see models.File
	ToolFormat string // how the model writes calls of tools; "" is what its chat template says
	MaxStreams int    // live streams at most; further ones are OVERLOADED
	Migrations int    // how often a stream may go on with another worker
	// MigrateAfter is how long a worker may be silent until another one goes on; 0 is for ever.
	MigrateAfter time.Duration
	// FirstTokenMove is the maximum time for the first token of a short prompt before another worker with a free
	// place takes over; 0 means no limit.
	FirstTokenMove time.Duration
	QueueStreams   int // how many streams wait here, in a fair order; 0 is none: they wait at the workers
	QueueTokens    int // how many tokens their prompts may have together
	// QueueOutage is how long they wait while no worker is healthy.
	QueueOutage time.Duration
	// HandoverAbove is how many tokens of a prompt a worker reads itself at most, where others read for it.
	HandoverAbove int
	Timers        rpc.Timers
	Calls         guard.Limits          // of the gRPC calls that callers hold open
	Link          bool                  // streams may come over links, and go over the workers' links
	LinkPort      int                   // on which links are served; 0 takes any
	Registered    discover.Registration // for api-services to find this one
	Metrics       *metrics.Metrics      // nil for none
	Traces        *streamtrace.Tracer   // nil for none
	Usage         *usage.Log            // nil for none
	Grace         time.Duration         // for streams that run when the process drains
	Stage         Stage                 // put around the pipeline by a program that builds this service in; nil is none
	// Local gets a connection for callers in this process, when they may call; nil is for programs without such callers.
	// The limits of Calls are not theirs.
	Local func(*inprocess.Conn)
}

// A Stage is a middleware for every stream of the service. See stream.Stage for what it must not do.
type Stage = stream.Stage[*chatv1.ChatRequest, *chatv1.GenerateResponse, *chatv1.ChatRequest, *chatv1.GenerateResponse]

// Defaults of Config.
const (
	DefaultName       = "chat-service"
	DefaultListen     = "127.0.0.1:8081"
	DefaultWorker     = "127.0.0.1:8082"
	DefaultMaxStreams = 10000
	DefaultGrace      = 30 * time.Second

	DefaultMigrations     = 3
	DefaultMigrateAfter   = 10 * time.Second
	DefaultFirstTokenMove = 10 * time.Second

	DefaultQueueTokens = 1 << 20
	DefaultQueueOutage = 30 * time.Second

	// DefaultHandoverAbove is about what is read in the time of a step of an engine and a fetch.
	DefaultHandoverAbove = 256
)

// DefaultTimers are more patient than the worker's, and less than the edge's.
var DefaultTimers = rpc.Timers{FirstToken: 150 * time.Second, Stall: 40 * time.Second, Idle: 2 * time.Minute}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	process.NameFlag(fs, &c.Name, DefaultName)
	fs.StringVar(&c.Worker, "worker", DefaultWorker, "where llm-workers are: "+discover.Forms)
	fs.StringVar(&c.Policy, "policy", policy.LeastLoaded, "which healthy worker gets a stream, by `name`: "+policy.Forms)
	c.KV.Flags(fs)
	fs.IntVar(&c.Migrations, "migrations", DefaultMigrations, "how often a stream may go on with another worker when its own is lost")
	fs.DurationVar(&c.MigrateAfter, "migrate-after", DefaultMigrateAfter, "how long a worker may be silent in mid-stream until another one goes on, or 2s if its health probes fail; 0 for ever")
	fs.DurationVar(&c.FirstTokenMove, "first-token-move", DefaultFirstTokenMove, "how long a worker may take for the first token until another one with a free place takes over, and as long again for every 8,192 tokens that the worker has to read before; 0 for ever")
	fs.IntVar(&c.HandoverAbove, "handover-above", DefaultHandoverAbove, "how many `tokens` a prompt must have that are not in its worker's cache for a worker of role prefill to read them, where there are such workers")
	fs.IntVar(&c.QueueStreams, "queue-streams", 0, "how many streams may wait here for a worker that has room, in an order that is fair to tenants; 0 has them wait at the workers, oldest first")
	fs.IntVar(&c.QueueTokens, "queue-tokens", DefaultQueueTokens, "how many tokens the prompts of the streams that wait here may have together")
	fs.DurationVar(&c.QueueOutage, "queue-outage", DefaultQueueOutage, "how long streams wait here while no worker is healthy; then they end with 503, and until a worker is healthy again new ones do so at once")
	fs.IntVar(&c.MaxStreams, "max-streams", DefaultMaxStreams, "live streams at most; further ones are refused")
	fs.DurationVar(&c.Grace, "drain", DefaultGrace, "how long live streams may finish after the first signal; a second signal ends them at once")
	c.Timers = DefaultTimers
	process.TimerFlags(fs, &c.Timers)
	c.Registered.Flags(fs)
	process.LinkFlag(fs, &c.Link)
	process.LinkPortFlag(fs, &c.LinkPort)
	process.IdleFlag(fs, &c.Timers)
	c.Calls = guard.Default
	c.Calls.Flags(fs)
	c.ModelFlags(fs)
	fs.StringVar(&c.Models, "models", "", "YAML `file` with cards of several models, read again when it changes; what cards leave out is as the other flags say")
}

// ModelFlags adds only the flags that say which model is served.
func (c *Config) ModelFlags(fs *flag.FlagSet) {
	fs.StringVar(&c.Model, "model", "", "Hugging Face `directory` of the model; empty for the embedded whence-tiny")
	fs.StringVar(&c.ModelName, "model-name", "", "what requests call the model; empty for the directory's name")
	fs.StringVar(&c.ToolFormat, "tool-format", chat.ToolFormatAuto, "how the model writes calls of tools, by `name`: hermes, llama, mistral, deepseek, harmony, none, or auto for what its chat template says")
}

// Validate reports what is wrong with c.
func (c *Config) Validate() error {
	if c.MaxStreams < 1 {
		return fmt.Errorf("--max-streams is %d; it must be at least 1", c.MaxStreams)
	}
	if c.Models != "" && (c.Model != "" || c.ModelName != "") {
		return errors.New("--models has the names and directories of all models: --model and --model-name are of no use beside it")
	}
	if err := c.Calls.Validate(); err != nil {
		return err
	}
	if err := c.Registered.Validate(); err != nil {
		return err
	}
	card := c.card()
	return card.Validate()
}

// card is the one model of a configuration without a file of cards, and what such a file leaves out.
func (c *Config) card() models.Card {
	return models.Card{
		Name: c.ModelName, Directory: c.Model, Workers: c.Worker, Policy: c.Policy, ToolFormat: c.ToolFormat,
		Migrations: c.Migrations, MigrateAfter: c.MigrateAfter, FirstTokenMove: c.FirstTokenMove, Timers: c.Timers,
		QueueStreams: c.QueueStreams, QueueTokens: c.QueueTokens, QueueOutage: c.QueueOutage, HandoverAbove: c.HandoverAbove, KV: c.KV,
	}
}

// Run serves on ln until ctx is done and the streams have drained. ln may be nil if all callers are in this process.
func Run(ctx context.Context, c Config, ln net.Listener, log *slog.Logger) error {
	if err := c.Validate(); err != nil {
		return err
	}
	records := &ledger.Ledger{Metrics: c.Metrics.Hop(c.Name, metrics.Chat), Traces: c.Traces, Usage: c.Usage}
	defer records.Settle()
	// All other timers are the models'.
	hop := &rpc.Hop{Name: c.Name, Live: stream.Set{Max: c.MaxStreams}, Timers: rpc.Timers{Idle: c.Timers.Idle}, Log: log, Observer: records}
	health := health.NewServer()
	registry := models.New(c.Name, log, func(healthy bool) { inspect.SetHealthy(health, chatv1.Chat_ServiceDesc.ServiceName, healthy) })
	registry.Metrics = records.Metrics
	if c.Link {
		registry.Connect = fleet.OverLinks(log)
	}
	defer registry.Close()
	follow, err := load(c, registry, hop)
	if err != nil {
		return err
	}
	ends, err := measure(records.Metrics, registry)
	if err != nil {
		return err
	}
	defer ends()
	answer := chat.Starter(registry.Start)
	if c.Stage != nil {
		answer = c.Stage(registry.Generate).Starter()
	}

	keep := func(context.Context) {}
	if ln != nil {
		if keep, err = c.Registered.Keeper(c.Name, "", ln.Addr(), log); err != nil {
			return err
		}
	}
	registered, leave := context.WithCancel(ctx) // new streams look elsewhere as soon as ctx is done
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { keep(registered) })
	wg.Go(func() { follow(following) })
	defer wg.Wait()
	defer stop()
	defer leave()
	s := New(hop, registry, health, answer)
	s.repeats = c.Stage != nil
	if c.Local != nil {
		local := inprocess.NewServer()
		s.Register(local)
		defer local.Stop()
		c.Local(local.Conn())
	}
	if ln == nil {
		<-ctx.Done()
		s.Drain(ctx, c.Grace)
		return nil
	}
	s.Limit(c.Calls.For(c.MaxStreams))
	if c.Link {
		s.Link(c.LinkPort)
	}
	return s.Serve(ctx, ln, c.Grace)
}

// load makes the models of registry those of c. It returns what follows their file, if there is one.
func load(c Config, registry *models.Registry, hop *rpc.Hop) (follow func(context.Context), err error) {
	if c.Models == "" {
		return func(context.Context) {}, registry.Set([]models.Card{c.card()})
	}
	file := &models.File{Path: c.Models, Defaults: c.card()}
	return func(ctx context.Context) { file.Follow(ctx, registry, ledger.At(hop).Metrics.Reloaded) }, file.Load(registry)
}

// measure has the metrics show what registry knows, until ends is called.
func measure(hop *metrics.Hop, registry *models.Registry) (ends func(), err error) {
	workers, err := hop.Workers(registry.Count)
	if err != nil {
		return nil, err
	}
	sources, err := hop.Discovery(registry.Unanswered)
	if err != nil {
		return nil, errors.Join(err, workers())
	}
	queue, err := hop.Queue(registry.Queue)
	if err != nil {
		return nil, errors.Join(err, workers(), sources())
	}
	return func() { _, _, _ = workers(), sources(), queue() }, nil // only a second call could fail
}

// ModelID returns what requests call the model, where there is no file of several.
func (c *Config) ModelID() string {
	card := c.card()
	return card.ID()
}

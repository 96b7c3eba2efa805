package server

import (
	"cmp"
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
	"github.com/whence-dev/whence/internal/flags"
	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/pkg/discover"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/inprocess"
	"github.com/whence-dev/whence/pkg/rpc/inspect"
	"github.com/whence-dev/whence/pkg/rpc/mtls"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/tokenizer"
	"github.com/whence-dev/whence/pkg/usage"
)

// A Config configures chat-service. The zero value serves the embedded model from a worker at
// DefaultWorker.
type Config struct {
	Name       string // in paths and logs
	Worker     string // addresses of llm-workers; see discover.Parse
	Policy     string // routing policy; see policy.Parse; "" is policy.LeastLoaded
	KV         kvcache.Options
	Model      string     // Hugging Face directory with tokenizer and chat template, GGUF file, or id on the hub; "" is the embedded model
	ModelName  string     // the model's name in requests; "" is the worker's name for it
	Adapters   flags.List // LoRA adapters of the model
	Models     string     // file with the cards of several models, replaces Model and ModelName; see models.File
	NoDownload bool       // files of an id on the hub come from the local cache only
	// Source gives set the cards of all models, whenever they change, until ctx is done. base has what the
	// other fields say about every model. nil means that the other fields describe the models.
	Source func(ctx context.Context, base models.Card, set func([]models.Card))
	// Missing returns why models of Source are still missing, for people, or ""; nil means that none is.
	Missing    func() string
	ToolFormat string // format of tool calls; "" detects it from the chat template
	MaxStreams int    // maximum live streams; further streams are OVERLOADED
	Migrations int    // maximum moves of a stream to another worker
	// MigrateAfter is the maximum silence of a worker before its stream moves; 0 means no limit.
	MigrateAfter time.Duration
	// FirstTokenMove is the maximum time to the first token of a short prompt before another worker
	// with a free place takes over; 0 means no limit.
	FirstTokenMove time.Duration
	QueueStreams   int // maximum waiting streams in the fair queue; 0 means no queue: streams wait at the workers
	QueueTokens    int // maximum prompt tokens of the waiting streams together
	// QueueOutage is the maximum waiting time while no worker is healthy.
	QueueOutage time.Duration
	// HandoverAbove is the maximum number of uncached prompt tokens that a decode worker reads
	// itself.
	HandoverAbove int
	Timers        rpc.Timers
	Calls         guard.Limits          // limits on the gRPC calls of callers
	Link          bool                  // serve links to callers, and use links to workers
	LinkPort      int                   // port for links; 0 takes any
	MTLS          mtls.Config           // of the connections to callers and workers
	Registered    discover.Registration // registration for discovery by api-services
	Metrics       *metrics.Metrics      // nil for none
	Traces        *streamtrace.Tracer   // nil for none
	Usage         *usage.Log            // nil for none
	Grace         time.Duration         // time for running streams when the process drains
	Stage         Stage                 // wraps the pipeline, in programs that embed this service; nil is none
	// Local is called with a connection for callers in this process, once they may call; nil for
	// programs without such callers. Calls does not limit them.
	Local func(*inprocess.Conn)
	// Near returns the connection to the worker at target (host:port) if it is in this process, or nil.
	// A nil Near means that no worker is.
	Near func(target string) *inprocess.Conn
}

// A Stage is a middleware for every stream of the service. See stream.Stage for what it must not
// do.
type Stage = stream.Stage[*chatv1.ChatRequest, *chatv1.GenerateResponse, *chatv1.ChatRequest, *chatv1.GenerateResponse]

// Defaults of Config.
const (
	DefaultName       = "chat-service"
	DefaultListen     = "127.0.0.1:8081"
	DefaultWorker     = "127.0.0.1:8082"
	DefaultMaxStreams = 10000
	DefaultGrace      = 30 * time.Second

	DefaultMigrations     = 3
	DefaultMigrateAfter   = models.DefaultMigrateAfter
	DefaultFirstTokenMove = models.DefaultFirstTokenMove

	DefaultQueueTokens = 1 << 20
	DefaultQueueOutage = 30 * time.Second

	// DefaultHandoverAbove is about the number of tokens that a worker reads in the time that a
	// handover takes.
	DefaultHandoverAbove = 256
)

// DefaultTimers are longer than the worker's and shorter than the edge's.
var DefaultTimers = rpc.Timers{FirstToken: models.DefaultFirstToken, Stall: models.DefaultStall, Idle: 2 * time.Minute}

// Flags adds flags for the fields of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	process.NameFlag(fs, &c.Name, DefaultName)
	fs.StringVar(&c.Worker, "worker", DefaultWorker, "addresses of llm-workers: "+discover.Forms)
	fs.StringVar(&c.Policy, "policy", policy.LeastLoaded, "routing policy that picks a worker for each stream, by `name`: "+policy.Forms)
	c.KV.Flags(fs)
	fs.IntVar(&c.Migrations, "migrations", DefaultMigrations, "how often a stream may move to another worker after losing its worker")
	fs.DurationVar(&c.MigrateAfter, "migrate-after", DefaultMigrateAfter, "how long a worker may be silent in mid-stream before another worker continues the stream (2s if its health probes fail); 0 means no limit")
	fs.DurationVar(&c.FirstTokenMove, "first-token-move", DefaultFirstTokenMove, "how long a worker may take for the first token before another worker with a free place takes over, plus the same time for every 8,192 tokens that the worker has to read first; 0 means no limit")
	fs.IntVar(&c.HandoverAbove, "handover-above", DefaultHandoverAbove, "prompts with more than this many uncached `tokens` are read by a worker of role prefill, if there is one")
	fs.IntVar(&c.QueueStreams, "queue-streams", 0, "how many streams may wait in a queue that is fair to tenants; 0 disables the queue: streams wait at the workers, oldest first")
	fs.IntVar(&c.QueueTokens, "queue-tokens", DefaultQueueTokens, "maximum number of prompt tokens in the queue")
	fs.DurationVar(&c.QueueOutage, "queue-outage", DefaultQueueOutage, "how long streams wait in the queue while no worker is healthy; after that, waiting and new streams end with 503 until a worker is healthy")
	fs.IntVar(&c.MaxStreams, "max-streams", DefaultMaxStreams, "maximum number of live streams; further streams are refused")
	fs.DurationVar(&c.Grace, "drain", DefaultGrace, "how long live streams may continue after the first signal; a second signal ends them immediately")
	c.Timers = DefaultTimers
	process.TimerFlags(fs, &c.Timers)
	c.Registered.Flags(fs)
	process.LinkFlag(fs, &c.Link)
	process.LinkPortFlag(fs, &c.LinkPort)
	c.MTLS.Flags(fs)
	c.MTLS.CallerFlags(fs)
	c.MTLS.CalleeFlags(fs)
	process.IdleFlag(fs, &c.Timers)
	c.Calls = guard.Default
	c.Calls.Flags(fs)
	flags.Group(fs, flags.Connections, "name", "worker", "register", "advertise", "link", "link-port", "mtls-cert", "mtls-key", "mtls-ca", "mtls-callers", "mtls-callees")
	flags.Group(fs, flags.Limits, "max-streams", "max-calls", "max-calls-per-connection")
	flags.Group(fs, flags.Timeouts, "drain", "deadline", "first-token-timeout", "stall-timeout", "idle-timeout", "first-message-timeout")
	flags.Group(fs, flags.Routing)
	c.ModelFlags(fs)
	fs.StringVar(&c.Models, "models", "", "YAML `file` with cards of several models, read again when it changes; the other flags are the defaults of the cards")
	fs.Var(&c.Adapters, "adapters", "LoRA adapters of the model, by their `names` on the engines, which requests use like names of models; repeated, or separated by commas")
	flags.Group(fs, flags.Model)
}

// ModelFlags adds only the flags that describe the model.
func (c *Config) ModelFlags(fs *flag.FlagSet) {
	fs.StringVar(&c.Model, "model", "", "`path` of the model's Hugging Face directory or GGUF file, or its id on the Hugging Face hub, such as Qwen/Qwen3-8B; empty for the embedded whence-tiny, or for the model of --upstream")
	fs.BoolVar(&c.NoDownload, "no-download", false, "take the files of an id on the hub only from the local cache (HF_HOME); weights are never downloaded")
	fs.StringVar(&c.ModelName, "model-name", "", "the `name` of the model in requests; empty for the name of the directory")
	fs.StringVar(&c.ToolFormat, "tool-format", chat.ToolFormatAuto, "the `format` of the model's tool calls: auto, which detects it from the chat template, none, a name of docs/reference/tool-formats.md, or json or xml with the texts around calls, such as \"json <call> </call>\"")
	flags.Group(fs, flags.Model)
}

// Validate returns an error that describes what is wrong with c, or nil.
func (c *Config) Validate() error {
	if c.MaxStreams < 1 {
		return fmt.Errorf("--max-streams is %d; it must be at least 1", c.MaxStreams)
	}
	if c.Models != "" && (c.Model != "" || c.ModelName != "" || len(c.Adapters) > 0) {
		return errors.New("--models names all models, their directories and adapters: remove --model, --model-name and --adapters")
	}
	if err := c.Calls.Validate(); err != nil {
		return err
	}
	if err := c.MTLS.Validate(); err != nil {
		return err
	}
	if err := c.Registered.Validate(); err != nil {
		return err
	}
	card := c.card()
	if c.Source != nil { // which names the models
		card.Name = cmp.Or(card.Name, "model")
	}
	return card.Validate()
}

// Check is Validate together with a look at the files that c names.
func (c *Config) Check() error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Models != "" {
		file := models.File{Path: c.Models, Defaults: c.card()}
		if err := file.Check(); err != nil {
			return fmt.Errorf("--models: %w", err)
		}
	}
	return process.CheckModel(c.Model, tokenizer.Files()...)
}

// card returns the only card of a configuration without a file of cards, which is also the default
// for the cards of a file.
func (c *Config) card() models.Card {
	card := models.Card{
		Name: c.ModelName, Directory: c.Model, Adapters: c.Adapters, NoDownload: c.NoDownload, Workers: c.Worker, Policy: c.Policy, ToolFormat: c.ToolFormat,
		Migrations: c.Migrations, MigrateAfter: c.MigrateAfter, FirstTokenMove: c.FirstTokenMove, Timers: c.Timers,
		QueueStreams: c.QueueStreams, QueueTokens: c.QueueTokens, QueueOutage: c.QueueOutage, HandoverAbove: c.HandoverAbove, KV: c.KV,
	}
	card.AddID()
	return card
}

// Run serves on ln until ctx is done and the streams have drained. ln may be nil if all callers are
// in this process.
func Run(ctx context.Context, c Config, ln net.Listener, log *slog.Logger) error {
	if err := c.Validate(); err != nil {
		return err
	}
	identity, err := c.identity(ln != nil, log)
	if err != nil {
		return err
	}
	records := &ledger.Ledger{Metrics: c.Metrics.Hop(c.Name, metrics.Chat), Traces: c.Traces, Usage: c.Usage}
	defer records.Settle()
	// The models have all other timers.
	hop := &rpc.Hop{Name: c.Name, Live: stream.Set{Max: c.MaxStreams}, Timers: rpc.Timers{Idle: c.Timers.Idle}, Log: log, Observer: records}
	health := health.NewServer()
	registry := c.registry(health, records.Metrics, identity, log)
	defer registry.Close()
	follow, err := load(ctx, c, registry, hop)
	if err != nil {
		return err
	}
	ends, err := measure(records.Metrics, registry)
	if err != nil {
		return err
	}
	defer ends()
	answer := chat.Engine(registry.Generate)
	if c.Stage != nil {
		answer = stream.Push(c.Stage(answer.Range))
	}

	keep := func(context.Context) {}
	if ln != nil {
		if keep, err = c.Registered.Keeper(c.Name, "", ln.Addr(), log); err != nil {
			return err
		}
	}
	registered, leave := context.WithCancel(ctx) // new streams go elsewhere as soon as ctx is done
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
	s.Authenticate(identity)
	if c.Link {
		s.Link(c.LinkPort)
	}
	return s.Serve(ctx, ln, c.Grace)
}

// registry returns a registry without models, which reports its health to health.
func (c *Config) registry(health *health.Server, m *metrics.Hop, identity *mtls.Identity, log *slog.Logger) *models.Registry {
	registry := models.New(c.Name, log, func(healthy bool) { inspect.SetHealthy(health, chatv1.Chat_ServiceDesc.ServiceName, healthy) })
	registry.Metrics = m
	registry.Connect = fleet.OverGRPC(identity)
	if c.Link {
		registry.Connect = fleet.OverLinks(identity, log, m.Carried())
	}
	if far := registry.Connect; c.Near != nil {
		registry.Connect = func(target string) (fleet.Conn, error) {
			if conn := c.Near(target); conn != nil {
				return conn, nil
			}
			return far(target)
		}
	}
	return registry
}

// identity returns the identity of this process towards callers and workers. served reports whether
// callers in other processes are served.
func (c *Config) identity(served bool, log *slog.Logger) (*mtls.Identity, error) {
	if served {
		if err := c.MTLS.ValidateCallee(); err != nil {
			return nil, err
		}
	}
	return c.MTLS.Open(log)
}

// load sets the models of registry from c. It returns a function that follows the models file, if
// there is one.
func load(ctx context.Context, c Config, registry *models.Registry, hop *rpc.Hop) (follow func(context.Context), err error) {
	if c.Model, err = hub.Resolve(ctx, c.Model, hub.Options{NoDownload: c.NoDownload, Log: hop.Log}); err != nil {
		return nil, fmt.Errorf("--model: %w", err)
	}
	if c.Source != nil {
		registry.Expect(c.Missing)
		return func(ctx context.Context) { c.Source(ctx, c.card(), registry.Take) }, nil
	}
	if c.Models == "" {
		return func(context.Context) {}, registry.Set([]models.Card{c.card()})
	}
	file := &models.File{Path: c.Models, Defaults: c.card()}
	return func(ctx context.Context) { file.Follow(ctx, registry, ledger.At(hop).Metrics.Reloaded) }, file.Load(ctx, registry)
}

// measure connects the metrics to registry until ends is called.
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

// ModelID returns the model's name in requests, for configurations without a models file.
func (c *Config) ModelID() string {
	card := c.card()
	return card.ID()
}

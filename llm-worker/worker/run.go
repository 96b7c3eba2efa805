package worker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/flags"
	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/llm-worker/engine/sim"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama"
	"github.com/whence-dev/whence/llm-worker/kvevents/upstream"
	"github.com/whence-dev/whence/pkg/discover"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/inprocess"
	"github.com/whence-dev/whence/pkg/rpc/mtls"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/usage"
)

// A Config is the configuration of llm-worker.
type Config struct {
	Name       string // in paths and logs; "" means process.InstanceName
	Model      string // Hugging Face directory, GGUF file or id on the hub; "" means the embedded model
	ModelName  string // the model's name in requests; "" means the directory's name
	NoDownload bool   // files of an id of the hub come from the local cache only
	MaxRunning int    // 0 means batch.DefaultMaxRunning, or the slots of a server (see beside.Options)
	MaxQueued  int
	Pace       float64          // tokens per second per stream; 0 means no limit
	KVTokens   int              // size of the KV cache, in tokens; 0 means the engine's default
	Threads    int              // of the engine; 0 means the engine's default
	Weights    string           // format of the embedded engine's weights in memory, one of tinyllama.Formats; "" means tinyllama.Stored
	Engine     string           // Embedded, OpenAI, VLLM, SGLang or Sim; "" means Auto
	Upstream   openai.Options   // the engines VLLM and SGLang use some of its fields
	Further    []string         // addresses of further servers, each of which needs a worker of its own
	Models     []string         // the models of --upstream-model, of which Upstream has the first; see Workers
	Adapters   []string         // LoRA adapters that the server of Upstream lists; Recognize sets it
	Server     string           // describes the server of Upstream for people; Recognize sets it
	Files      bool             // the server's model needs files although its engine does not, because chat-service is in this process
	Events     upstream.Options // events of the server beside the worker; zero means none
	Sim        sim.Options      // of the engine Sim, together with KVTokens
	Role       string           // Both, Prefill or Decode; "" means Both
	// NoPrefixCache makes the embedded engine read every prompt from its beginning.
	NoPrefixCache bool
	Timers        rpc.Timers
	Calls         guard.Limits          // limits on the gRPC calls that callers hold open
	Link          bool                  // serve streams over links too
	LinkPort      int                   // on which links are served; 0 takes any
	MTLS          mtls.Config           // of the connections of callers
	Registered    discover.Registration // registration of this worker, with which chat-services discover it
	Metrics       *metrics.Metrics      // nil for none
	Traces        *streamtrace.Tracer   // nil for none
	Usage         *usage.Log            // nil for none
	Progress      io.Writer             // a terminal, on which the loading of the model is drawn; nil to log it
	Healthy       func()                // is called whenever the engine becomes healthy; nil for none
	Local         func(*inprocess.Conn) // is called with a connection for callers in this process, once they may call; nil for none
	Grace         time.Duration
	Stage         Stage // a middleware around the engine, for programs that embed this service; nil means none

	aliases []string // further names of the model in requests; complete sets them
}

// A Stage is a middleware for every stream of the service.
type Stage = stream.Stage[*workerv1.TokenRequest, *workerv1.GenerateResponse, *workerv1.TokenRequest, *workerv1.GenerateResponse]

const (
	// ServeName is the name of the worker inside `whence serve`.
	ServeName = serviceName + "/0"

	serviceName = "llm-worker"
)

// NumberedName returns the name of a worker of a process with several: llm-worker/0, llm-worker/1 and so on.
func NumberedName(i int) string { return fmt.Sprintf("%s/%d", serviceName, i) }

// Defaults of Config.
const (
	DefaultListen = "127.0.0.1:8082"
	DefaultGrace  = 30 * time.Second

	// maxStreams sizes the limits on calls: it is the default stream limit of a chat-service, all
	// of whose streams may be here. The engine's queue bounds the streams themselves.
	maxStreams = 10_000
)

// DefaultTimers are the shortest timeouts of the path.
var DefaultTimers = rpc.Timers{FirstToken: 2 * time.Minute, Stall: 30 * time.Second}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	process.InstanceFlag(fs, &c.Name, serviceName)
	fs.StringVar(&c.Model, "model", "", "`path` of a Hugging Face directory or GGUF file, or an id on the Hugging Face hub, such as Qwen/Qwen3-8B; of a Llama, Mistral, Qwen2, Qwen3 or Phi-3 for the embedded engine, which needs the weights on this machine; empty for the embedded whence-tiny, or for the model of --upstream")
	fs.BoolVar(&c.NoDownload, "no-download", false, "take the files of an id on the hub only from the local cache (HF_HOME); weights are never downloaded")
	fs.StringVar(&c.ModelName, "model-name", "", "the model's name in requests; empty for the directory's or file's name, or without one for the name that vllm or sglang reports")
	fs.DurationVar(&c.Grace, "drain", DefaultGrace, "how long live streams may finish after the first signal; a second signal ends them at once")
	c.Timers = DefaultTimers
	process.TimerFlags(fs, &c.Timers)
	c.Calls = guard.Default
	c.Calls.Flags(fs)
	c.Registered.Flags(fs)
	process.LinkFlag(fs, &c.Link)
	process.LinkPortFlag(fs, &c.LinkPort)
	c.MTLS.Flags(fs)
	c.MTLS.CalleeFlags(fs)
	flags.Group(fs, flags.Connections, "name", "register", "advertise", "link", "link-port", "mtls-cert", "mtls-key", "mtls-ca", "mtls-callers")
	flags.Group(fs, flags.Model, "model", "model-name", "no-download")
	flags.Group(fs, flags.Limits, "max-calls", "max-calls-per-connection")
	flags.Group(fs, flags.Timeouts)
	c.EngineFlags(fs)
}

// EngineFlags adds only the flags of the engine.
func (c *Config) EngineFlags(fs *flag.FlagSet) {
	fs.IntVar(&c.MaxRunning, "max-running", 0, fmt.Sprintf("maximum streams in the batch, or at the server beside the worker, which decides which of them wait; 0 for %d, or at a server for as many as it reports that it runs at a time, at least %d", batch.DefaultMaxRunning, beside.DefaultMaxRunning))
	fs.IntVar(&c.MaxQueued, "max-queued", batch.DefaultMaxQueued, "maximum streams that wait for a place in the batch; further streams are refused")
	fs.Float64Var(&c.Pace, "pace", 0, "maximum tokens per second per stream, so that a demo looks like a GPU's stream; 0 for no limit")
	fs.IntVar(&c.KVTokens, "kv-tokens", 0, "size of the KV cache, in tokens of all streams together; 0 for the engine's default")
	fs.IntVar(&c.Threads, "threads", 0, "threads of the embedded engine; 0 for all cores, or half of them for a model of less than 100 million weights")
	fs.StringVar(&c.Weights, "weights", tinyllama.Stored, "`format` of the embedded engine's weights in memory: as they are stored, f32, bf16 or int8")
	fs.BoolVar(&c.NoPrefixCache, "no-prefix-cache", false, "make the embedded engine read every prompt from its beginning, without the prefix cache")
	fs.StringVar(&c.Role, "role", Both, "the worker's part in handovers of prompts: none, only whole streams (both), prompts for other workers (prefill), or whole streams and prompts that prefill workers have read (decode)")
	flags.Group(fs, flags.Limits, "max-running", "max-queued")
	c.kindFlags(fs)
}

// Validate checks c.
func (c *Config) Validate() error {
	switch {
	case c.MaxRunning < 0:
		return fmt.Errorf("--max-running is %d; it must not be negative", c.MaxRunning)
	case c.MaxQueued < 0:
		return fmt.Errorf("--max-queued is %d; it must not be negative", c.MaxQueued)
	case c.Pace < 0 || c.Pace > 1e6:
		return fmt.Errorf("--pace is %g; it must be 0 to 1,000,000", c.Pace)
	case c.KVTokens < 0 || c.Threads < 0:
		return errors.New("--kv-tokens and --threads must not be negative")
	case c.Weights != "" && !slices.Contains(tinyllama.Formats, c.Weights):
		return fmt.Errorf("--weights is %q; it must be one of %s", c.Weights, strings.Join(tinyllama.Formats, ", "))
	}
	if err := c.validateEngine(); err != nil {
		return err
	}
	if err := c.validateRole(); err != nil {
		return err
	}
	if err := c.MTLS.ValidateCallee(); err != nil {
		return err
	}
	if err := c.Registered.Validate(); err != nil {
		return err
	}
	if err := c.Calls.Validate(); err != nil {
		return err
	}
	return c.Timers.Validate()
}

// tell returns set with a call of c.Healthy.
func (c *Config) tell(set func(healthy bool)) func(healthy bool) {
	return func(healthy bool) {
		set(healthy)
		if healthy && c.Healthy != nil {
			c.Healthy()
		}
	}
}

// complete fills in what neither a flag nor a default sets: the name, the description by the server of
// c.Upstream tells, and the path of the model's files. It returns nil if ctx ends first.
func (c *Config) complete(ctx context.Context, addr net.Addr, log *slog.Logger) (err error) {
	if c.Name == "" {
		c.Name = process.InstanceName(serviceName, addr)
	}
	named := c.ModelName != "" // by the operator
	aliases, err := c.Recognize(ctx, log, nil)
	if err == nil {
		if c.Model, err = c.resolve(ctx, log); err != nil {
			err = fmt.Errorf("--model: %w", err)
		}
	}
	if !named {
		c.aliases = append(aliases, hub.Aliases(c.ModelName, c.Model)...)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // no failure
	}
	return err
}

// Run serves on ln until ctx is done and the streams have drained.
func Run(ctx context.Context, c Config, ln net.Listener, log *slog.Logger) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := c.complete(ctx, ln.Addr(), log); err != nil || ctx.Err() != nil {
		return err
	}
	identity, err := c.MTLS.Open(log)
	if err != nil {
		return err
	}
	hop := c.Metrics.Hop(c.Name, metrics.TextCompletion)
	e, err := newEngine(&c, hop, log)
	if err != nil {
		return err
	}
	generate := e.generate
	if c.Stage != nil {
		generate = c.Stage(generate)
	}
	unwatch, err := hop.Load(e.load)
	if err != nil {
		return err
	}
	defer unwatch() //nolint:errcheck // only a second call could fail
	s := NewServer(c.Name, e.model, generate, e.info, log)
	s.Embeds(e.embed)
	s.Scores(e.score)
	s.hop.Timers = c.Timers
	s.Measure(hop)
	s.Trace(c.Traces)
	s.Account(c.Usage)
	defer s.records.Settle()
	s.Limit(c.Calls.For(maxStreams))
	s.Authenticate(identity)
	s.Tell(e.held)
	if c.Link {
		s.Link(c.LinkPort)
	}
	s.SetHealthy(e.ready)
	if c.Local != nil {
		local := inprocess.NewServer()
		s.Register(local)
		defer local.Stop()
		c.Local(local.Conn())
	}

	keep, err := c.Registered.Keeper(c.Name, e.model, ln.Addr(), log)
	if err != nil {
		return err
	}
	// The engine outlives ctx: it stops when the streams have drained. New streams go to other
	// workers as soon as ctx is done.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	registered, leave := context.WithCancel(ctx)
	wg.Go(func() { keep(registered) })
	wg.Go(func() { e.run(running, c.tell(s.SetHealthy)) })
	defer wg.Wait()
	defer stop()
	defer leave()
	return s.Serve(ctx, ln, c.Grace)
}

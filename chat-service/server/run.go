package server

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/whence-dev/whence/chat-service/admit"
	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/route"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/whencetiny"
)

// A Config says what chat-service does. The zero value serves the embedded model from a worker at DefaultWorker.
type Config struct {
	Name       string // in paths and logs
	Worker     string // host:port of each llm-worker, with commas between them
	Policy     string // which of them gets a stream; "" is route.LeastLoadedPolicy
	Model      string // Hugging Face directory with tokenizer and template; "" is the embedded model
	ModelName  string // what requests call the model; "" is the worker's name for it
	MaxStreams int    // live streams at most; further ones are OVERLOADED
	Migrations int    // how often a stream may go on with another worker
	// MigrateAfter is how long a worker may be silent until another one goes on; 0 is for ever.
	MigrateAfter time.Duration
	QueueStreams int // how many streams wait here, in a fair order; 0 is none: they wait at the workers
	QueueTokens  int // how many tokens their prompts may have together
	Timers       rpc.Timers
	Metrics      *metrics.Metrics    // nil for none
	Traces       *streamtrace.Tracer // nil for none
	Grace        time.Duration       // for streams that run when the process drains
	Stage        Stage               // put around the pipeline by a program that builds this service in; nil is none
}

// A Stage sees every stream of the service.
type Stage = stream.Stage[*chatv1.ChatRequest, *chatv1.GenerateResponse, *chatv1.ChatRequest, *chatv1.GenerateResponse]

// Defaults of Config.
const (
	DefaultName       = "chat-service"
	DefaultListen     = "127.0.0.1:8081"
	DefaultWorker     = "127.0.0.1:8082"
	DefaultMaxStreams = 10000
	DefaultGrace      = 30 * time.Second

	DefaultMigrations   = 3
	DefaultMigrateAfter = 10 * time.Second

	DefaultQueueTokens = 1 << 20
)

// DefaultTimers are more patient than the worker's, and less than the edge's.
var DefaultTimers = rpc.Timers{FirstToken: 150 * time.Second, Stall: 40 * time.Second}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Name, "name", DefaultName, "this instance's `name` in paths and logs")
	fs.StringVar(&c.Worker, "worker", DefaultWorker, "`host:port` of the llm-worker; with commas between them of several")
	fs.StringVar(&c.Policy, "policy", route.LeastLoadedPolicy, "which healthy worker gets a stream, by `name`: least-loaded, round-robin or power-of-two")
	fs.IntVar(&c.Migrations, "migrations", DefaultMigrations, "how often a stream may go on with another worker when its own is lost")
	fs.DurationVar(&c.MigrateAfter, "migrate-after", DefaultMigrateAfter, "how long a worker may be silent in mid-stream until another one goes on; 0 for ever")
	fs.IntVar(&c.QueueStreams, "queue-streams", 0, "how many streams may wait here for a worker that has room, in an order that is fair to tenants; 0 has them wait at the workers, oldest first")
	fs.IntVar(&c.QueueTokens, "queue-tokens", DefaultQueueTokens, "how many tokens the prompts of those that wait here may have together")
	fs.IntVar(&c.MaxStreams, "max-streams", DefaultMaxStreams, "live streams at most; further ones are refused")
	fs.DurationVar(&c.Grace, "drain", DefaultGrace, "how long running streams may finish after the first signal")
	c.Timers = DefaultTimers
	c.Timers.Flags(fs)
	c.ModelFlags(fs)
}

// ModelFlags adds only the flags that say which model is served.
func (c *Config) ModelFlags(fs *flag.FlagSet) {
	fs.StringVar(&c.Model, "model", "", "Hugging Face `directory` of the model; empty for the embedded whence-tiny")
	fs.StringVar(&c.ModelName, "model-name", "", "what requests call the model; empty for the directory's name")
}

// Validate reports what is wrong with c.
func (c *Config) Validate() error {
	if c.MaxStreams < 1 {
		return fmt.Errorf("--max-streams is %d; it must be at least 1", c.MaxStreams)
	}
	if c.Migrations < 0 || c.MigrateAfter < 0 {
		return errors.New("--migrations and --migrate-after must not be negative")
	}
	if c.QueueStreams < 0 || c.QueueStreams > 0 && c.QueueTokens < 1 {
		return errors.New("--queue-streams must not be negative, and --queue-tokens must be at least 1")
	}
	if _, err := route.NewPolicy(c.Policy); err != nil {
		return fmt.Errorf("--policy: %w", err)
	}
	workers, err := c.workers()
	if err != nil {
		return fmt.Errorf("--worker: %w", err)
	}
	// A lone worker is never left, so its streams may have any timers.
	if len(workers) > 1 && c.Timers.Stall > 0 && c.MigrateAfter >= c.Timers.Stall {
		return fmt.Errorf("--migrate-after is %v; it must be less than --stall-timeout, which is %v", c.MigrateAfter, c.Timers.Stall)
	}
	return c.Timers.Validate()
}

// workers returns the addresses of the workers.
func (c *Config) workers() ([]string, error) {
	all := strings.Split(c.Worker, ",")
	if len(all) > route.MaxWorkers {
		return nil, fmt.Errorf("there are %d workers; %d are the most", len(all), route.MaxWorkers)
	}
	for i, worker := range all {
		all[i] = strings.TrimSpace(worker)
		if _, _, err := net.SplitHostPort(all[i]); err != nil {
			return nil, err
		}
		if slices.Contains(all[:i], all[i]) {
			return nil, fmt.Errorf("%s is there twice", all[i])
		}
	}
	return all, nil
}

// Run serves on ln until ctx is done and the streams have drained.
func Run(ctx context.Context, c Config, ln net.Listener, log *slog.Logger) error {
	if err := c.Validate(); err != nil {
		return err
	}
	model, err := loadModel(c)
	if err != nil {
		return err
	}
	pool, err := dial(c, model, log)
	if err != nil {
		return err
	}
	defer pool.Close()
	hop := &rpc.Hop{Name: c.Name, Live: stream.Set{Max: c.MaxStreams}, Timers: c.Timers, Log: log, Metrics: c.Metrics.Hop(c.Name, metrics.Chat), Traces: c.Traces}
	unwatch, err := hop.Metrics.Workers(pool.Count)
	if err != nil {
		return err
	}
	defer unwatch() //nolint:errcheck // only a second call could fail
	var wg sync.WaitGroup
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer wg.Wait()
	defer stop()
	workers := pool.Generate
	if c.QueueStreams > 0 {
		queue := admit.New(admit.Options{MaxStreams: c.QueueStreams, MaxTokens: c.QueueTokens, Room: pool.Room, Admitted: hop.Metrics.Admitted})
		unqueue, err := hop.Metrics.Queue(queue.Load)
		if err != nil {
			return err
		}
		defer unqueue() //nolint:errcheck // only a second call could fail
		wg.Go(func() { queue.Run(watching) })
		workers = queue.Stage(workers)
	}
	engine := chat.New(model, workers)
	if c.Stage != nil {
		engine = c.Stage(engine)
	}
	s := New(hop, model, engine, pool)
	wg.Go(func() { pool.Watch(watching, s.SetHealthy) })
	return s.Serve(ctx, ln, c.Grace)
}

// dial returns the workers that fit the model.
func dial(c Config, model *chat.Model, log *slog.Logger) (*route.Pool, error) {
	policy, err := route.NewPolicy(c.Policy)
	if err != nil {
		return nil, err
	}
	workers, err := c.workers()
	if err != nil {
		return nil, err
	}
	pool := route.New(route.Options{
		Self: c.Name, Policy: policy, Migrations: c.Migrations, MigrateAfter: c.MigrateAfter,
		Check: func(info *workerv1.InfoResponse) error { return fits(model, info) }, Log: log,
	})
	return pool, pool.Set(workers...)
}

// ModelID returns what requests call the model.
func (c *Config) ModelID() string {
	switch {
	case c.ModelName != "":
		return c.ModelName
	case c.Model != "":
		return filepath.Base(c.Model)
	default:
		return whencetiny.Name
	}
}

func loadModel(c Config) (*chat.Model, error) {
	dir := whencetiny.FS()
	name, owner := c.ModelID(), whencetiny.Owner
	if c.Model != "" {
		dir, owner = os.DirFS(c.Model), ""
	}
	model, err := chat.Load(dir, name, owner)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", name, err)
	}
	return model, nil
}

// fits reports why a worker cannot serve the model: token ids must mean the same on both sides.
func fits(model *chat.Model, info *workerv1.InfoResponse) error {
	switch {
	case info.GetModel() != model.Name:
		return fmt.Errorf("%s serves the model %q, not %q", info.GetInstance(), info.GetModel(), model.Name)
	case int(info.GetVocabSize()) < model.Tokenizer.VocabSize():
		return fmt.Errorf("%s has a vocabulary of %d, the tokenizer one of %d", info.GetInstance(), info.GetVocabSize(), model.Tokenizer.VocabSize())
	case int(info.GetContextLength()) < model.ContextLength:
		return fmt.Errorf("%s has a context of %d tokens, config.json says %d", info.GetInstance(), info.GetContextLength(), model.ContextLength)
	}
	return nil
}

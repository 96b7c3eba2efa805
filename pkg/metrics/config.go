package metrics

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/whence-dev/whence/internal/descriptors"
	"github.com/whence-dev/whence/internal/otlp"
)

// A Config configures how a process exposes its metrics. The zero value does not expose them.
type Config struct {
	// Elsewhere reports that a listener of the services serves the Pages, so that metrics are
	// collected even without Listen.
	Elsewhere bool
	Measured  bool   // the services themselves need the metrics
	Listen    string // host:port that answers scrapes; "" for none
	Pprof     bool   // Listen also serves Go's profiles, under /debug/pprof/
}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Listen, "metrics-listen", "", "`host:port` that serves Prometheus metrics at /metrics; port 0 means any free port, empty disables metrics")
	fs.BoolVar(&c.Pprof, "pprof", c.Pprof, "serve Go's profiles at /debug/pprof/ on --metrics-listen")
}

// Validate returns an error if c is invalid.
func (c *Config) Validate() error {
	if c.Listen == "" {
		if c.Pprof && !c.Elsewhere { // such a listener serves the profiles
			return errors.New("--pprof needs --metrics-listen, the address that serves the profiles")
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("--metrics-listen: %w", err)
	}
	return nil
}

const (
	// pushEvery is the interval of pushes to a collector.
	pushEvery = 10 * time.Second
	// headerTimeout and scrapeTimeout bound how long a scraper occupies a connection.
	headerTimeout = 5 * time.Second
	scrapeTimeout = 30 * time.Second
)

// Run runs services with the metrics of a process. The metrics are nil if they are neither scraped
// nor pushed to a collector. They are available before services is called, and until after it has
// returned, so that a drain can be watched.
func (c *Config) Run(name string, to otlp.Collector, log *slog.Logger, services func(*Metrics) error) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Listen == "" && to == "" && !c.Elsewhere && !c.Measured {
		return services(nil)
	}
	var push []func(sdk.Producer) (sdk.Reader, error)
	if to != "" {
		push = append(push, pushed(to))
		// The handler also gets the errors of exporters of spans. err says which signal it is about.
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("telemetry could not be pushed", "otlp", to, "err", err) }))
	}
	m, err := New(name, push...)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), otlp.Timeout)
		defer cancel()
		if err := m.Close(ctx); err != nil { // a lost collector must not fail a process that has done its work
			log.Warn("the last metrics could not be pushed", "otlp", to, "err", err)
		}
	}()
	if c.Listen == "" {
		return services(m)
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--metrics-listen: %w", err)
	}
	stop := m.serve(ln, c.Pprof, log)
	defer func() { err = errors.Join(err, stop()) }()
	return services(m)
}

// pushed returns the constructor of the reader that pushes to a collector.
func pushed(to otlp.Collector) func(sdk.Producer) (sdk.Reader, error) {
	return func(p sdk.Producer) (sdk.Reader, error) {
		exporter, err := to.Metrics(context.Background())
		if err != nil {
			return nil, err
		}
		return sdk.NewPeriodicReader(exporter, sdk.WithInterval(pushEvery), sdk.WithTimeout(otlp.Timeout), sdk.WithProducer(p)), nil
	}
}

// maxSymbols bounds a request for the names of functions, in bytes.
const maxSymbols = 1 << 20

// Pages returns a handler of scrapes, and with profiles also of requests for Go's profiles.
func (m *Metrics) Pages(profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	if profiles { // without pprof.Cmdline, because flags may have keys
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.Handle("POST /debug/pprof/symbol", http.MaxBytesHandler(http.HandlerFunc(pprof.Symbol), maxSymbols))
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// serve serves the Pages on ln until stop is called.
func (m *Metrics) serve(ln net.Listener, profiles bool, log *slog.Logger) (stop func() error) {
	srv := &http.Server{
		Handler: m.Pages(profiles), ReadTimeout: headerTimeout, WriteTimeout: scrapeTimeout, IdleTimeout: scrapeTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(descriptors.BriefListener(ln)) }()
	log.Info("serving metrics", "addr", ln.Addr().String())
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close() // a scraper that does not read
		}
		if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("metrics server: %w", err)
		}
		return nil
	}
}

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

	"github.com/whence-dev/whence/internal/otlp"
)

// A Config says who scrapes the metrics of a process. The zero value is nobody.
type Config struct {
	Listen string // host:port that answers scrapes; "" for none
	Pprof  bool   // Listen also serves Go's profiles, under /debug/pprof/
}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Listen, "metrics-listen", "", "`host:port` that answers Prometheus at /metrics; port 0 takes any, empty is off")
	fs.BoolVar(&c.Pprof, "pprof", c.Pprof, "serve Go's profiles at /debug/pprof/ on --metrics-listen")
}

// Validate reports what is wrong with c.
func (c *Config) Validate() error {
	if c.Listen == "" {
		if c.Pprof {
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
	// pushEvery is how old a collector's figures get.
	pushEvery = 10 * time.Second
	// headerTimeout and scrapeTimeout bound what a scraper can hold.
	headerTimeout = 5 * time.Second
	scrapeTimeout = 30 * time.Second
)

// Run runs a process's services with its metrics, which are nil if nobody is shown them, by scrapes or by pushes to a collector.
// They are there before services is called, and until after it has returned, so that a drain can be watched.
func (c *Config) Run(name string, to otlp.Collector, log *slog.Logger, services func(*Metrics) error) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Listen == "" && to == "" {
		return services(nil)
	}
	var push []func(sdk.Producer) (sdk.Reader, error)
	if to != "" {
		push = append(push, pushed(to))
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("metrics could not be pushed", "otlp", to, "err", err) }))
	}
	m, err := New(name, push...)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), otlp.Timeout)
		defer cancel()
		if err := m.Close(ctx); err != nil { // a collector that is gone fails no process that has done its work
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

// pushed makes the reader that pushes.
func pushed(to otlp.Collector) func(sdk.Producer) (sdk.Reader, error) {
	return func(p sdk.Producer) (sdk.Reader, error) {
		exporter, err := to.Metrics(context.Background())
		if err != nil {
			return nil, err
		}
		return sdk.NewPeriodicReader(exporter, sdk.WithInterval(pushEvery), sdk.WithTimeout(otlp.Timeout), sdk.WithProducer(p)), nil
	}
}

// serve answers scrapes on ln, and requests for profiles if profiles is set, until stop is called.
func (m *Metrics) serve(ln net.Listener, profiles bool, log *slog.Logger) (stop func() error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	if profiles { // without pprof.Cmdline: flags may hold keys
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTimeout, WriteTimeout: scrapeTimeout, IdleTimeout: scrapeTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
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

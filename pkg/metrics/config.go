package metrics

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// A Config says who is shown the metrics of a process. The zero value is nobody, and nothing is measured.
type Config struct {
	Listen string // host:port that answers scrapes; "" for none
	OTLP   string // host:port of a collector, of traces, too; "" for none
}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Listen, "metrics-listen", "", "`host:port` that answers Prometheus at /metrics; port 0 takes any, empty is off")
	fs.StringVar(&c.OTLP, "otlp", "", "`host:port` of an OpenTelemetry collector that metrics and traces are pushed to, by OTLP over HTTP; empty is off")
}

// Validate reports what is wrong with c.
func (c *Config) Validate() error {
	for name, addr := range map[string]string{"metrics-listen": c.Listen, "otlp": c.OTLP} {
		if addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
	}
	return nil
}

const (
	// pushEvery is how old a collector's figures get.
	pushEvery = 10 * time.Second
	// pushTimeout bounds one push, and the last one at the end of the process.
	pushTimeout = 5 * time.Second
	// headerTimeout and scrapeTimeout bound what a scraper can hold.
	headerTimeout = 5 * time.Second
	scrapeTimeout = 30 * time.Second
)

// Run runs a process's services with the metrics of c, which are nil if nobody is shown them. They are there before
// services is called, and until after it has returned, so that a drain can be watched.
func (c *Config) Run(name string, log *slog.Logger, services func(*Metrics) error) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Listen == "" && c.OTLP == "" {
		return services(nil)
	}
	var push []func(sdk.Producer) (sdk.Reader, error)
	if c.OTLP != "" {
		push = append(push, c.collector)
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("metrics could not be pushed", "otlp", c.OTLP, "err", err) }))
	}
	m, err := New(name, push...)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), pushTimeout)
		defer cancel()
		if err := m.Close(ctx); err != nil { // a collector that is gone fails no process that has done its work
			log.Warn("the last metrics could not be pushed", "otlp", c.OTLP, "err", err)
		}
	}()
	if c.Listen == "" {
		return services(m)
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--metrics-listen: %w", err)
	}
	stop := m.serve(ln, log)
	defer func() { err = errors.Join(err, stop()) }()
	return services(m)
}

// collector makes the reader that pushes, over HTTP: one protocol more on a gRPC connection would bring nothing.
func (c *Config) collector(p sdk.Producer) (sdk.Reader, error) {
	exporter, err := otlpmetrichttp.New(context.Background(),
		otlpmetrichttp.WithEndpoint(c.OTLP), otlpmetrichttp.WithInsecure(), otlpmetrichttp.WithTimeout(pushTimeout))
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	return sdk.NewPeriodicReader(exporter, sdk.WithInterval(pushEvery), sdk.WithTimeout(pushTimeout), sdk.WithProducer(p)), nil
}

// serve answers scrapes on ln until stop is called.
func (m *Metrics) serve(ln net.Listener, log *slog.Logger) (stop func() error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
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

// Package otlp holds the address of an OpenTelemetry collector, and its exporters of metrics, spans
// and logs.
package otlp

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
)

// A Collector is the value of --otlp: grpc://host:port, http://host:port, or host:port, which means
// http; "" means none.
type Collector string

// Usage describes the flag.
const Usage = "`address` of an OpenTelemetry collector that metrics, traces and, if asked for, usage records are pushed to: grpc://host:4317, or http://host:4318, whose scheme may be left out; empty is off"

// Timeout bounds one push, and the last one at the end of a process.
const Timeout = 5 * time.Second

// Schemes of collectors.
const (
	overGRPC = "grpc"
	overHTTP = "http"
)

// split returns the protocol and the host:port of the collector.
func (c Collector) split() (scheme, addr string) {
	scheme, addr, ok := strings.Cut(string(c), "://")
	if !ok {
		return overHTTP, string(c)
	}
	return scheme, strings.TrimSuffix(addr, "/")
}

// Validate checks c.
func (c Collector) Validate() error {
	if c == "" {
		return nil
	}
	scheme, addr := c.split()
	if scheme != overGRPC && scheme != overHTTP {
		return fmt.Errorf("--otlp is %.128q; it must be grpc://host:port, http://host:port or host:port", string(c))
	}
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("--otlp: %w", err)
	}
	return nil
}

// Metrics returns an exporter of metrics to c, which must not be "".
func (c Collector) Metrics(ctx context.Context) (e metric.Exporter, err error) {
	switch scheme, addr := c.split(); scheme {
	case overGRPC:
		e, err = otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpoint(addr), otlpmetricgrpc.WithInsecure(), otlpmetricgrpc.WithTimeout(Timeout))
	default:
		e, err = otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpoint(addr), otlpmetrichttp.WithInsecure(), otlpmetrichttp.WithTimeout(Timeout))
	}
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	return e, nil
}

// Spans returns an exporter of spans to c, which must not be "".
func (c Collector) Spans(ctx context.Context) (e trace.SpanExporter, err error) {
	switch scheme, addr := c.split(); scheme {
	case overGRPC:
		e, err = otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(addr), otlptracegrpc.WithInsecure(), otlptracegrpc.WithTimeout(Timeout))
	default:
		e, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpoint(addr), otlptracehttp.WithInsecure(), otlptracehttp.WithTimeout(Timeout))
	}
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	return e, nil
}

// logPatience bounds the attempts to push one batch of log records. Its exporter repeats those that
// the collector may take later, and further records wait meanwhile.
const logPatience = time.Minute

// Logs returns an exporter of log records to c, which must not be "".
func (c Collector) Logs(ctx context.Context) (e log.Exporter, err error) {
	switch scheme, addr := c.split(); scheme {
	case overGRPC:
		e, err = otlploggrpc.New(ctx, otlploggrpc.WithEndpoint(addr), otlploggrpc.WithInsecure(), otlploggrpc.WithTimeout(logPatience))
	default:
		e, err = otlploghttp.New(ctx, otlploghttp.WithEndpoint(addr), otlploghttp.WithInsecure(), otlploghttp.WithTimeout(Timeout))
	}
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	return e, nil
}

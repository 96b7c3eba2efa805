// Package otlp has the address of an OpenTelemetry collector, and makes exporters of metrics, spans
// and logs for it.
package otlp

import (
	"context"
	"fmt"
	"net"
	"slices"
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

// A Collector is the value of --otlp: grpc://host:port, http://host:port, grpcs:// or https:// with
// TLS, or host:port, which means http. "" means no collector.
//
// The variables OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE and
// OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE of OpenTelemetry set credentials and certificates.
type Collector string

// Usage is the help of the flag.
const Usage = "`address` of an OpenTelemetry collector that receives metrics, traces and, with --usage-otlp, usage records: grpc://host:4317, http://host:4318 or host:4318, grpcs:// or https:// with TLS; empty disables it"

// Timeout bounds one push, and the last push at the end of a process.
const Timeout = 5 * time.Second

// The schemes of collectors.
const (
	overGRPC  = "grpc"
	overGRPCS = "grpcs"
	overHTTP  = "http"
	overHTTPS = "https"
)

// split returns the protocol and the host:port of the collector.
func (c Collector) split() (scheme, addr string) {
	scheme, addr, ok := strings.Cut(string(c), "://")
	if !ok {
		return overHTTP, string(c)
	}
	return scheme, strings.TrimSuffix(addr, "/")
}

// Validate returns an error if c is invalid.
func (c Collector) Validate() error {
	if c == "" {
		return nil
	}
	scheme, addr := c.split()
	if !slices.Contains([]string{overGRPC, overGRPCS, overHTTP, overHTTPS}, scheme) {
		return fmt.Errorf("--otlp is %.128q; it must be host:port after grpc://, grpcs://, http://, https:// or nothing", string(c))
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
	case overGRPC, overGRPCS:
		options := []otlpmetricgrpc.Option{otlpmetricgrpc.WithEndpoint(addr), otlpmetricgrpc.WithTimeout(Timeout)}
		if scheme == overGRPC {
			options = append(options, otlpmetricgrpc.WithInsecure())
		}
		e, err = otlpmetricgrpc.New(ctx, options...)
	default:
		options := []otlpmetrichttp.Option{otlpmetrichttp.WithEndpoint(addr), otlpmetrichttp.WithTimeout(Timeout)}
		if scheme == overHTTP {
			options = append(options, otlpmetrichttp.WithInsecure())
		}
		e, err = otlpmetrichttp.New(ctx, options...)
	}
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	return e, nil
}

// Spans returns an exporter of spans to c, which must not be "".
func (c Collector) Spans(ctx context.Context) (e trace.SpanExporter, err error) {
	switch scheme, addr := c.split(); scheme {
	case overGRPC, overGRPCS:
		options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(addr), otlptracegrpc.WithTimeout(Timeout)}
		if scheme == overGRPC {
			options = append(options, otlptracegrpc.WithInsecure())
		}
		e, err = otlptracegrpc.New(ctx, options...)
	default:
		options := []otlptracehttp.Option{otlptracehttp.WithEndpoint(addr), otlptracehttp.WithTimeout(Timeout)}
		if scheme == overHTTP {
			options = append(options, otlptracehttp.WithInsecure())
		}
		e, err = otlptracehttp.New(ctx, options...)
	}
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	return e, nil
}

// logPatience bounds the attempts to push one batch of log records. The exporter retries records
// that the collector may accept later, and further records wait meanwhile.
const logPatience = time.Minute

// Logs returns an exporter of log records to c, which must not be "".
func (c Collector) Logs(ctx context.Context) (e log.Exporter, err error) {
	switch scheme, addr := c.split(); scheme {
	case overGRPC, overGRPCS:
		options := []otlploggrpc.Option{otlploggrpc.WithEndpoint(addr), otlploggrpc.WithTimeout(logPatience)}
		if scheme == overGRPC {
			options = append(options, otlploggrpc.WithInsecure())
		}
		e, err = otlploggrpc.New(ctx, options...)
	default:
		options := []otlploghttp.Option{otlploghttp.WithEndpoint(addr), otlploghttp.WithTimeout(Timeout)}
		if scheme == overHTTP {
			options = append(options, otlploghttp.WithInsecure())
		}
		e, err = otlploghttp.New(ctx, options...)
	}
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	return e, nil
}

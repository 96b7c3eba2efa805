package usage

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	sdk "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/whence-dev/whence/internal/otlp"
)

const (
	// scope is the instrumentation scope of the log records.
	scope = "github.com/whence-dev/whence/pkg/usage"
	// eventName is the event name of the log records.
	eventName = "whence.usage"
	// prefix is the prefix of field names in attributes.
	prefix = "whence.usage."
)

// A collector sends records to an OpenTelemetry collector as log records, with an attribute per
// field.
type collector struct {
	exporter sdk.Exporter
	provider *sdk.LoggerProvider
	logger   log.Logger
	batch    gatherer
}

func newCollector(service string, to otlp.Collector) (*collector, error) {
	exporter, err := to.Logs(context.Background())
	if err != nil {
		return nil, err
	}
	return exportTo(service, exporter), nil
}

// exportTo returns a sink that writes to exporter.
func exportTo(service string, exporter sdk.Exporter) *collector {
	c := &collector{exporter: exporter}
	c.provider = sdk.NewLoggerProvider(
		sdk.WithProcessor(&c.batch),
		sdk.WithResource(resource.NewSchemaless(semconv.ServiceName(service))),
	)
	c.logger = c.provider.Logger(scope)
	return c
}

// Name implements Sink.
func (*collector) Name() string { return "otlp" }

// Write implements Sink. The exporter retries a batch that the collector refused for lack of
// capacity.
func (c *collector) Write(ctx context.Context, records []Record) (written int, err error) {
	c.batch.records = c.batch.records[:0]
	for i := range records {
		c.logger.Emit(ctx, logRecord(&records[i]))
	}
	if err := c.exporter.Export(ctx, c.batch.records); err != nil {
		return 0, err
	}
	return len(records), nil
}

// Close implements Sink.
func (c *collector) Close(ctx context.Context) error {
	err := c.provider.Shutdown(ctx)
	if failed := c.exporter.Shutdown(ctx); failed != nil {
		err = failed
	}
	return err
}

// A gatherer is a processor that collects the log records for one call of the exporter.
type gatherer struct{ records []sdk.Record }

// Enabled implements the SDK's Processor.
func (*gatherer) Enabled(context.Context, sdk.EnabledParameters) bool { return true }

// OnEmit implements the SDK's Processor.
func (g *gatherer) OnEmit(_ context.Context, r *sdk.Record) error {
	g.records = append(g.records, r.Clone())
	return nil
}

// ForceFlush implements the SDK's Processor.
func (*gatherer) ForceFlush(context.Context) error { return nil }

// Shutdown implements the SDK's Processor.
func (*gatherer) Shutdown(context.Context) error { return nil }

// logRecord converts a record to OpenTelemetry's form. It omits the fields that JSON omits.
func logRecord(r *Record) log.Record {
	var out log.Record
	out.SetEventName(eventName)
	out.SetTimestamp(r.Ended)
	out.SetObservedTimestamp(r.Ended)
	out.SetSeverity(log.SeverityInfo)
	out.SetBody(attribute.StringValue("usage of the stream " + r.ID))
	text := func(name, value string) {
		if value != "" {
			out.AddAttributes(attribute.String(prefix+name, value))
		}
	}
	tokens := func(name string, n uint32) { out.AddAttributes(attribute.Int64(prefix+name, int64(n))) }
	moment := func(name string, at time.Time) { text(name, at.UTC().Format(time.RFC3339Nano)) }
	text("kind", string(r.Kind))
	text("id", r.ID)
	text("part", r.Part)
	text("hop", r.Hop)
	if r.Resumed {
		out.AddAttributes(attribute.Bool(prefix+"resumed", true))
	}
	text("tenant", r.Tenant)
	text("key", r.Key)
	text("model", r.Model)
	text("surface", r.Surface)
	if len(r.Ignored) > 0 {
		out.AddAttributes(attribute.StringSlice(prefix+"ignored", r.Ignored))
	}
	tokens("prompt_tokens", r.Prompt)
	if r.Cached != nil {
		tokens("cached_tokens", *r.Cached)
	}
	tokens("generated_tokens", r.Generated)
	tokens("delivered_tokens", r.Delivered)
	tokens("wasted_tokens", r.Wasted)
	if r.Estimated {
		out.AddAttributes(attribute.Bool(prefix+"estimated", true))
	}
	text("reason", r.Reason)
	text("origin", r.Origin)
	out.AddAttributes(attribute.StringSlice(prefix+"path", r.Path))
	text("worker", r.Worker)
	moment("received", r.Received)
	if r.FirstToken != nil {
		moment("first_token", *r.FirstToken)
	}
	moment("ended", r.Ended)
	return out
}

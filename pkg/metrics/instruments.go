package metrics

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/whence-dev/whence/internal/descriptors"
)

// Units of OpenTelemetry. The metric names in a scrape end with the units, spelled out.
const (
	seconds  = "s"
	octets   = "By"
	tokens   = "{token}"
	streams  = "{stream}"
	messages = "{message}"
	requests = "{request}"
	fields   = "{field}"
	rpcs     = "{call}"
	workers  = "{worker}"
	sources  = "{source}"
	reloads  = "{reload}"
	blocks   = "{block}"
	records  = "{record}"
	sockets  = "{connection}"
)

// Buckets. The buckets of gen_ai.* are those that the conventions recommend; the request's buckets
// are extended to ten minutes, because answers may take that long.
var (
	requestBuckets = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36}
	firstBuckets   = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60}
	perBuckets     = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5}
	usageBuckets   = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576}
	stopBuckets    = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1}
	queueBuckets   = []float64{0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120}
	stepBuckets    = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1}
	batchBuckets   = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
)

// instruments has the metrics that are recorded once per stream, step or collection. The metrics
// per message are in produce.go.
type instruments struct {
	endings, refused, ignored, wasted, judged, reloads metric.Int64Counter
	unread                                             metric.Int64Counter
	left                                               metric.Int64Counter
	chosen, expected, cached, dropped                  metric.Int64Counter
	refusedCalls, refusedConnections                   metric.Int64Counter
	retried, unretried, cooled                         metric.Int64Counter
	carried                                            metric.Int64Counter
	recorded                                           metric.Int64Counter

	duration, first, perToken, stop metric.Float64Histogram
	usage                           metric.Int64Histogram

	queue, step, handover, pause metric.Float64Histogram
	batch                        metric.Int64Histogram

	running, queued, kvUsed, kvLimit, kvCached metric.Int64ObservableGauge
	healthy, known, unanswered                 metric.Int64ObservableGauge

	exhausted metric.Int64ObservableCounter // of the process, not of a hop

	meter metric.Meter
}

func newInstruments(meter metric.Meter) (*instruments, error) {
	m := maker{meter: meter}
	in := &instruments{
		endings:            m.counter("whence.stream.endings", streams, "Ended streams, by reason and origin; each stream counts exactly once."),
		left:               m.counter("whence.clients.left", streams, "Streams whose client has left, by the extent of the answer that the client had."),
		refused:            m.counter("whence.requests.refused", requests, "Requests that did not become a stream, by reason."),
		ignored:            m.counter("whence.fields.ignored", fields, "Fields of requests that were left out because nothing here honours them, by API and field; unknown fields count as other."),
		unread:             m.counter("whence.calls.unread", streams, "Answers to requests with tools in which a text looks like the beginning of a tool call and is not one, by the text."),
		refusedCalls:       m.counter("whence.calls.refused", rpcs, "gRPC calls that exceeded a limit: the time to the first message, or the open calls of one connection or of all."),
		refusedConnections: m.counter("whence.connections.refused", sockets, "Client connections that were closed because of a limit: connections from one address, or all connections."),

		exhausted: m.observed("whence.descriptors.refused", sockets, "Connections that the process refused because it was out of file descriptors, and requests on such connections.", descriptors.Refused),

		carried: m.counter("whence.streams.carried", streams, "Streams that were opened to the hop below, by transport: a link, or gRPC while there is no link."),

		wasted: m.counter("whence.tokens.wasted", tokens, "Tokens that were generated below but not passed on."),
		judged: m.counter("whence.streams.judged", streams, "Streams whose client has reported how they arrived, by the verdict."),

		recorded:  m.counter("whence.usage.records", records, "Usage records, by sink and by whether they were written or lost."),
		reloads:   m.counter("whence.config.reloads", reloads, "Model files that were read while the process ran, by whether they were accepted."),
		chosen:    m.counter("whence.route.decisions", streams, "Workers chosen for a stream, by policy and role; a stream that moves or is handed over counts several times."),
		retried:   m.counter("whence.route.retries", streams, "Streams that were retried on another worker after a failure, by reason and by phase: before or after the first token."),
		unretried: m.counter("whence.route.retries.refused", streams, "Streams that were not retried because the retry budget was used up."),
		cooled:    m.counter("whence.workers.cooldowns", workers, "Cool-downs of workers that failed repeatedly or were full, by reason."),

		expected: m.counter("whence.tokens.cached.expected", tokens, "Tokens of prompts that were expected in the KV cache of the worker chosen."),
		cached:   m.counter("whence.tokens.cached", tokens, "Tokens of prompts that the engine found in its KV cache, of answers that completed."),
		dropped:  m.counter("whence.kv.blocks.dropped", blocks, "Blocks in the engine's KV cache that could not be named, by reason; policy kv does not see them."),

		duration: m.timer("gen_ai.server.request.duration", "Time from a stream's request to its ending.", requestBuckets),
		first:    m.timer("gen_ai.server.time_to_first_token", "Time from a stream's request to the first token that is passed on.", firstBuckets),
		perToken: m.timer("gen_ai.server.time_per_output_token", "Mean time per token after the first token, for streams that completed.", perBuckets),
		usage:    m.counts("gen_ai.client.token.usage", tokens, "Tokens of prompts and of answers, per stream.", usageBuckets),
		stop:     m.timer("whence.stop.duration", "Time from a stop's arrival at a hop until the hop below has stopped.", stopBuckets),

		queue:    m.timer("whence.queue.duration", "Time from a stream's arrival to its admission: into the engine's batch, or to a worker.", queueBuckets),
		handover: m.timer("whence.route.handover.duration", "Time from the choice of a prefill worker until the decode worker has its handover, or until the handover has failed, by reason.", firstBuckets),

		step:  m.timer("whence.step.duration", "Time of one step of the engine; a step with a prompt in it is a prefill.", stepBuckets),
		pause: m.timer("whence.kv.pause.duration", "Time for which a stream was paused because the KV cache had no room for it.", queueBuckets),
		batch: m.counts("whence.batch.size", streams, "Streams in one step of the engine.", batchBuckets),

		running:  m.gauge("whence.streams.running", streams, "Streams that are admitted: to the engine's batch, or to a worker."),
		queued:   m.gauge("whence.streams.queued", streams, "Streams that wait for admission."),
		kvUsed:   m.gauge("whence.kv.used", tokens, "Token positions of the KV cache that streams hold or are promised."),
		kvLimit:  m.gauge("whence.kv.limit", tokens, "Total token positions of the KV cache."),
		kvCached: m.gauge("whence.kv.cached", tokens, "Token positions of the KV cache that hold prefixes for later prompts."),
		healthy:  m.gauge("whence.workers.healthy", workers, "Workers that accept streams."),
		known:    m.gauge("whence.workers.known", workers, "Workers that are listed or were discovered, healthy or not."),

		unanswered: m.gauge("whence.discovery.unanswered", sources, "Sources of addresses that do not answer; their last addresses remain in use."),

		meter: meter,
	}
	return in, errors.Join(m.errs...)
}

// A maker makes instruments, and collects the errors.
type maker struct {
	meter metric.Meter
	errs  []error
}

func (m *maker) check(err error) {
	if err != nil {
		m.errs = append(m.errs, err)
	}
}

func (m *maker) counter(name, unit, help string) metric.Int64Counter {
	i, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.check(err)
	return i
}

// observed returns a counter whose value is another's.
func (m *maker) observed(name, unit, help string, value func() int64) metric.Int64ObservableCounter {
	i, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(value())
		return nil
	}))
	m.check(err)
	return i
}

func (m *maker) timer(name, help string, buckets []float64) metric.Float64Histogram {
	i, err := m.meter.Float64Histogram(name, metric.WithUnit(seconds), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(buckets...))
	m.check(err)
	return i
}

func (m *maker) counts(name, unit, help string, buckets []float64) metric.Int64Histogram {
	i, err := m.meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(buckets...))
	m.check(err)
	return i
}

func (m *maker) gauge(name, unit, help string) metric.Int64ObservableGauge {
	i, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.check(err)
	return i
}

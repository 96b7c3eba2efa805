package metrics

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// Units that OpenTelemetry writes; the names in a scrape end with them, spelled out.
const (
	seconds  = "s"
	octets   = "By"
	tokens   = "{token}"
	streams  = "{stream}"
	messages = "{message}"
	requests = "{request}"
	rpcs     = "{call}"
	workers  = "{worker}"
	sources  = "{source}"
	reloads  = "{reload}"
	blocks   = "{block}"
	records  = "{record}"
)

// Buckets. Those of gen_ai.* are the ones that its conventions advise; the request's are continued to ten minutes, which
// answers take.
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

// instruments are what is recorded once per stream, step or collection. What is counted per message is in produce.go.
type instruments struct {
	endings, refused, wasted, judged, reloads metric.Int64Counter
	left                                      metric.Int64Counter
	chosen, expected, cached, dropped         metric.Int64Counter
	refusedCalls                              metric.Int64Counter
	retried, unretried, cooled                metric.Int64Counter
	recorded                                  metric.Int64Counter

	duration, first, perToken, stop metric.Float64Histogram
	usage                           metric.Int64Histogram

	queue, step, handover metric.Float64Histogram
	batch                 metric.Int64Histogram

	running, queued, kvUsed, kvLimit, kvCached metric.Int64ObservableGauge
	healthy, known, unanswered                 metric.Int64ObservableGauge

	meter metric.Meter
}

func newInstruments(meter metric.Meter) (*instruments, error) {
	m := maker{meter: meter}
	in := &instruments{
		endings:      m.counter("whence.stream.endings", streams, "Streams that have ended, by why and where the ending began; each exactly once."),
		left:         m.counter("whence.clients.left", streams, "Streams whose client has left, by how much of the answer it had."),
		refused:      m.counter("whence.requests.refused", requests, "Requests that did not become a stream, by why."),
		refusedCalls: m.counter("whence.calls.refused", rpcs, "Calls of gRPC that met a limit: of the time to a first message, or of open calls of a connection or in all."),

		wasted: m.counter("whence.tokens.wasted", tokens, "Tokens that were generated below and not passed on."),
		judged: m.counter("whence.streams.judged", streams, "Streams whose client has reported how they arrived, by the verdict."),

		recorded:  m.counter("whence.usage.records", records, "Usage records, by where they go and whether they were written or lost."),
		reloads:   m.counter("whence.config.reloads", reloads, "Files of models that were read while the process ran, by whether they were taken."),
		chosen:    m.counter("whence.route.decisions", streams, "Workers chosen for a stream, by policy and role; a stream that moves or is handed over counts several times."),
		retried:   m.counter("whence.route.retries", streams, "Streams for which another worker was asked after a failure, by reason, and by phase: before the first token or after it."),
		unretried: m.counter("whence.route.retries.refused", streams, "Streams that were not retried because the budget for retries was spent."),
		cooled:    m.counter("whence.workers.cooldowns", workers, "Cool-downs of workers that failed repeatedly or were full, by why."),

		expected: m.counter("whence.tokens.cached.expected", tokens, "Tokens of prompts that were expected in the KV cache of the worker chosen."),
		cached:   m.counter("whence.tokens.cached", tokens, "Tokens of prompts that the engine found in its KV cache, of streams that completed."),
		dropped:  m.counter("whence.kv.blocks.dropped", blocks, "Blocks that the engine has stored in its KV cache and that could not be named, by why; policy kv does not see them."),

		duration: m.timer("gen_ai.server.request.duration", "From a stream's request to its ending.", requestBuckets),
		first:    m.timer("gen_ai.server.time_to_first_token", "From a stream's request to the first token that is passed on.", firstBuckets),
		perToken: m.timer("gen_ai.server.time_per_output_token", "Mean time per token after the first, of streams that completed.", perBuckets),
		usage:    m.counts("gen_ai.client.token.usage", tokens, "Tokens of prompts and of answers, by stream.", usageBuckets),
		stop:     m.timer("whence.stop.duration", "From when a hop hears of a stop until what is below it has stopped.", stopBuckets),

		queue:    m.timer("whence.queue.duration", "From a stream's arrival to its place: in the engine's batch, or with a worker.", queueBuckets),
		handover: m.timer("whence.route.handover.duration", "From choosing who reads a prompt for another worker until that has been told what it needs, or it has failed, by why.", firstBuckets),

		step:  m.timer("whence.step.duration", "One step of the engine; a step with a prompt in it is a prefill.", stepBuckets),
		batch: m.counts("whence.batch.size", streams, "Streams in one step of the engine.", batchBuckets),

		running:  m.gauge("whence.streams.running", streams, "Streams that have their place: in the engine's batch, or with a worker."),
		queued:   m.gauge("whence.streams.queued", streams, "Streams that wait for their place."),
		kvUsed:   m.gauge("whence.kv.used", tokens, "Token positions of KV cache that are reserved."),
		kvLimit:  m.gauge("whence.kv.limit", tokens, "Token positions of KV cache that there are."),
		kvCached: m.gauge("whence.kv.cached", tokens, "Token positions of KV cache that hold prefixes which later prompts can find."),
		healthy:  m.gauge("whence.workers.healthy", workers, "Workers that take streams."),
		known:    m.gauge("whence.workers.known", workers, "Workers that are listed or were found, healthy or not."),

		unanswered: m.gauge("whence.discovery.unanswered", sources, "Sources of addresses that do not answer; what they said last holds."),

		meter: meter,
	}
	return in, errors.Join(m.errs...)
}

// A maker makes instruments, and keeps what goes wrong for later.
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

package metrics

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tally"
)

// An Operation is the kind of work of a hop's streams, with the values of gen_ai.operation.name.
type Operation string

// The operations.
const (
	Chat           Operation = "chat"
	TextCompletion Operation = "text_completion"
	Embeddings     Operation = "embeddings"
	Scores         Operation = "score"
)

// provider is the value of gen_ai.provider.name.
const provider = "whence"

// other is the label value for words outside an enum, and for words beyond a bound.
const other = "other"

// A Hop has the metrics of one hop of the path. A nil Hop accepts all calls. All methods are safe
// for concurrent use.
type Hop struct {
	*instruments
	paused *atomic.Bool
	pool   *pool
	name   attribute.KeyValue
	kind   string    // the name without an instance
	op     Operation // of streams without an operation of their own
	add    []metric.AddOption
	record []metric.RecordOption

	unknown map[Operation]*modelOptions // of streams whose model is not known yet

	calls       calls
	connections connections

	mu     sync.Mutex // guards the following fields
	live   map[*Stream]struct{}
	in     totals // of streams that have ended
	out    totals
	models map[modelKey]*modelOptions
}

// A modelKey identifies the metrics of the streams of one operation and one model.
type modelKey struct {
	op    Operation
	model string
}

func newHop(m *Metrics, name string, op Operation) *Hop {
	hop := attribute.String("hop", name)
	h := &Hop{
		instruments: m.instruments,
		paused:      &m.paused,
		pool:        &m.pool,
		name:        hop,
		kind:        kindOf(name),
		op:          op,
		add:         []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(hop))},
		record:      []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(hop))},
		live:        map[*Stream]struct{}{},
		unknown:     map[Operation]*modelOptions{},
		models:      map[modelKey]*modelOptions{},
	}
	for _, each := range []Operation{Chat, TextCompletion, Embeddings, Scores, other} {
		h.unknown[each] = newModelOptions(h.gen(each))
	}
	h.wasted.Add(context.Background(), 0, h.add...) // a counter that begins at its first event has no rate
	h.cached.Add(context.Background(), 0, h.add...)
	return h
}

// gen returns the labels of the streams of an operation whose model is not known yet.
func (h *Hop) gen(op Operation) []attribute.KeyValue {
	return []attribute.KeyValue{h.name, attribute.String("gen_ai.operation.name", string(op)), attribute.String("gen_ai.provider.name", provider)}
}

// Begin registers a stream, and makes its tally time its messages. The stream is live until its
// End.
func (h *Hop) Begin(t *tally.Tally) *Stream {
	if h == nil || h.paused.Load() {
		return nil
	}
	t.Time()
	s := &Stream{hop: h, tally: t, op: h.operation(h.op)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live[s] = struct{}{}
	return s
}

// operation returns op if it is a known operation, and other if not.
func (h *Hop) operation(op Operation) Operation {
	if h.unknown[op] == nil {
		return other
	}
	return op
}

// end adds the figures of a stream that has ended to the totals of the hop, and returns the
// figures. first is false if the stream had ended before. at is the stream's trace, if it is
// exported.
func (h *Hop) end(s *Stream, at trace.SpanContext) (figures tally.Snapshot, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, first = h.live[s]; !first {
		return figures, false
	}
	delete(h.live, s)
	figures = s.tally.Close()
	h.waste(figures.Wasted())
	h.in.Add(&figures.Received.Counts)
	h.out.Add(&figures.Sent.Counts)
	h.in.link(figures.Received.Longest, at)
	h.out.link(figures.Sent.Longest, at)
	return figures, true
}

// late counts tokens of a stream that has ended which were generated below but never reached this
// hop.
func (h *Hop) late(tokens uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.in.Tokens += tokens
	h.waste(tokens)
}

func (h *Hop) waste(tokens uint64) {
	if tokens == 0 {
		return
	}
	h.wasted.Add(context.Background(), int64(tokens), h.add...)
}

// sum returns the totals of all streams, and the number of live streams.
func (h *Hop) sum() (in, out totals, live int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	in, out = h.in, h.out
	for s := range h.live {
		figures := s.tally.Snapshot()
		in.Add(&figures.Received.Counts)
		out.Add(&figures.Sent.Counts)
	}
	return in, out, len(h.live)
}

// answers adds the models of the hop's streams to used, and those of live streams to live, except for
// the models of engines. It looks at the streams only if there are others.
func (h *Hop) answers(engines, used, live map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	others := false
	for key := range h.models {
		if !engines[key.model] && key.model != other {
			used[key.model], others = true, true
		}
	}
	if !others {
		return
	}
	for s := range h.live {
		if o := s.model.Load(); o != nil && used[o.model] {
			live[o.model] = true
		}
	}
}

// Refused counts a request that did not become a stream.
func (h *Hop) Refused(reason streamerr.Reason) {
	if h != nil {
		h.refused.Add(context.Background(), 1, metric.WithAttributes(h.name, reasonLabel(reason)))
	}
}

// Ignored counts a field of a request that was left out. api and field are words of an enum.
func (h *Hop) Ignored(api, field string) {
	if h != nil {
		h.ignored.Add(context.Background(), 1, metric.WithAttributes(h.name, attribute.String("api", api), attribute.String("field", field)))
	}
}

// Unread counts a text of an answer that looks like a tool call and was not read as one. text is a
// word of an enum.
func (h *Hop) Unread(text string) {
	if h != nil {
		h.unread.Add(context.Background(), 1, metric.WithAttributes(h.name, attribute.String("text", text)))
	}
}

// Judged counts a stream whose client has reported how the stream arrived. verdict is a word of an
// enum.
func (h *Hop) Judged(verdict string) {
	if h != nil {
		h.judged.Add(context.Background(), 1, metric.WithAttributes(h.name, attribute.String("verdict", verdict)))
	}
}

// Workers registers count, which returns how many workers accept streams, and how many are known.
// Each collection calls count. The returned function unregisters it.
func (h *Hop) Workers(count func() (healthy, known int)) (end func() error, err error) {
	if h == nil {
		return func() error { return nil }, nil
	}
	hop := metric.WithAttributeSet(attribute.NewSet(h.name))
	asked, err := h.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		healthy, known := count()
		o.ObserveInt64(h.healthy, int64(healthy), hop)
		o.ObserveInt64(h.known, int64(known), hop)
		return nil
	}, h.healthy, h.known)
	if err != nil {
		return nil, fmt.Errorf("metrics of the workers: %w", err)
	}
	return asked.Unregister, nil
}

// Discovery registers unanswered, which returns how many sources of addresses do not answer. Each
// collection calls it. The returned function unregisters it.
func (h *Hop) Discovery(unanswered func() int) (end func() error, err error) {
	if h == nil {
		return func() error { return nil }, nil
	}
	hop := metric.WithAttributeSet(attribute.NewSet(h.name))
	asked, err := h.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(h.unanswered, int64(unanswered()), hop)
		return nil
	}, h.unanswered)
	if err != nil {
		return nil, fmt.Errorf("metrics of discovery: %w", err)
	}
	return asked.Unregister, nil
}

// Reloaded counts a configuration that was read while the process ran. taken reports whether it was
// accepted.
func (h *Hop) Reloaded(taken bool) {
	if h != nil {
		result := "refused"
		if taken {
			result = "taken"
		}
		h.reloads.Add(context.Background(), 1, metric.WithAttributes(h.name, attribute.String("result", result)))
	}
}

// maxModels bounds the model labels of a hop; further models are counted as other.
const maxModels = 100

// model returns the labels of an operation and a model.
func (h *Hop) model(op Operation, name string) *modelOptions {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.models[modelKey{op, name}]; o != nil {
		return o
	}
	if len(h.models) >= maxModels {
		name = other
	}
	o := h.models[modelKey{op, name}]
	if o == nil {
		o = newModelOptions(append(h.gen(op), attribute.String("gen_ai.response.model", name)))
		o.known, o.model = true, name
		h.models[modelKey{op, name}] = o
	}
	return o
}

// modelOptions has the labels of the streams of one model, which are made once.
type modelOptions struct {
	known                bool // the model is known
	model                string
	labels               []attribute.KeyValue
	plain, input, output []metric.RecordOption
}

func newModelOptions(labels []attribute.KeyValue) *modelOptions {
	with := func(more ...attribute.KeyValue) []metric.RecordOption {
		return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(append(slices.Clip(labels), more...)...))}
	}
	return &modelOptions{
		labels: labels,
		plain:  with(),
		input:  with(attribute.String("gen_ai.token.type", "input")),
		output: with(attribute.String("gen_ai.token.type", "output")),
	}
}

func (o *modelOptions) failed(reason streamerr.Reason) []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributes(append(slices.Clip(o.labels), attribute.String("error.type", reasonWord(reason)))...)}
}

// kinds are the kinds of hops at which an ending may begin.
var kinds = []string{"client", "operator", "api-service", "chat-service", "llm-worker", "engine"}

// origin returns the label for the origin of an ending: a kind of hop, not the name that a peer
// gives itself.
func (h *Hop) origin(hop string) string {
	if kind := kindOf(hop); kind == h.kind || slices.Contains(kinds, kind) {
		return kind
	}
	return other
}

// kindOf returns a hop's name without its instance: llm-worker/0 is an llm-worker.
func kindOf(hop string) string {
	kind, _, _ := strings.Cut(hop, "/")
	return kind
}

package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/whence-dev/whence/internal/load"
	"github.com/whence-dev/whence/internal/printable"
)

const (
	// maxEndings bounds the kinds of endings that are listed; all others count as otherEnding.
	maxEndings  = 30
	otherEnding = "other"
	maxExample  = 200 // bytes of a message
)

// A benchRecorder collects the measurements of all streams.
type benchRecorder struct {
	mu     sync.Mutex
	ttft   *load.Histogram
	gaps   *load.Histogram
	events int64 // with a part of an answer
	// Of the completed streams whose usage is known.
	usageEvents, usageTokens int64

	streams benchCounts
	endings map[string]*benchEnding
}

func newBenchRecorder() *benchRecorder {
	return &benchRecorder{ttft: load.NewHistogram(), gaps: load.NewHistogram(), endings: map[string]*benchEnding{}}
}

func (r *benchRecorder) first(ttft time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events++
	r.ttft.Record(ttft)
}

func (r *benchRecorder) gap(gap time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events++
	r.gaps.Record(gap)
}

func (r *benchRecorder) completed(reason string, events, tokens int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams.Completed++
	if tokens > 0 {
		r.usageEvents += events
		r.usageTokens += tokens
	}
	r.end(reason, "")
}

func (r *benchRecorder) failed(reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams.Failed++
	r.end(reason, message)
}

// left records a stream that was running when the time was over.
func (r *benchRecorder) left(events int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams.Left++
	if events == 0 {
		r.streams.Waiting++
	}
	r.end(reasonLeft, "")
}

// end counts an ending. r.mu is locked.
func (r *benchRecorder) end(reason, message string) {
	e := r.endings[reason]
	if e == nil {
		if len(r.endings) >= maxEndings {
			reason = otherEnding
		}
		if e = r.endings[reason]; e == nil {
			e = &benchEnding{Reason: reason, Example: printable.Line(message[:min(len(message), maxExample)])}
			r.endings[reason] = e
		}
	}
	e.Count++
}

// A benchReport is the result of a run.
type benchReport struct {
	URL     string  `json:"url"`
	Model   string  `json:"model"`
	Clients int     `json:"clients"`
	Rate    float64 `json:"rate"` // 0 for a closed loop
	Seconds float64 `json:"seconds"`

	Streams benchCounts `json:"streams"`
	TTFT    latencies   `json:"ttft_ms"`
	Gap     latencies   `json:"gap_ms"`

	Events int64 `json:"events"` // with a part of an answer
	// Tokens is the number of events times the number of tokens per event, which the usage of the
	// completed streams tells. Without usage each event counts as one token.
	Tokens           int64         `json:"tokens"`
	UsageKnown       bool          `json:"usage_known"`
	TokensPerSecond  float64       `json:"tokens_per_second"`
	StreamsPerSecond float64       `json:"completed_per_second"`
	Endings          []benchEnding `json:"endings"` // the most frequent first
}

type benchCounts struct {
	Begun     int64 `json:"begun"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
	Left      int64 `json:"left"`    // when the time was over
	Waiting   int64 `json:"waiting"` // of those that were left: without a first token
	Unsent    int64 `json:"unsent"`  // due, but all clients were busy
}

type benchEnding struct {
	Reason  string `json:"reason"`
	Count   int64  `json:"count"`
	Example string `json:"example,omitempty"` // the message of one of them
}

type latencies struct {
	N   int64   `json:"n"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func latenciesOf(h *load.Histogram) latencies {
	at := func(percent float64) float64 { return float64(h.Percentile(percent)) / 1000 }
	if h.Count() == 0 {
		return latencies{}
	}
	return latencies{N: h.Count(), P50: at(50), P90: at(90), P99: at(99), Max: float64(h.Max()) / 1000}
}

// report returns the report of a run that took a time.
func (r *benchRecorder) report(took time.Duration) *benchReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &benchReport{
		Seconds: took.Seconds(), Streams: r.streams, TTFT: latenciesOf(r.ttft), Gap: latenciesOf(r.gaps),
		Events: r.events, Tokens: r.events, UsageKnown: r.usageEvents > 0, Endings: []benchEnding{},
	}
	if out.UsageKnown {
		out.Tokens = int64(float64(r.events)*float64(r.usageTokens)/float64(r.usageEvents) + 0.5)
	}
	out.TokensPerSecond = float64(out.Tokens) / took.Seconds()
	out.StreamsPerSecond = float64(r.streams.Completed) / took.Seconds()
	for _, e := range r.endings {
		out.Endings = append(out.Endings, *e)
	}
	slices.SortFunc(out.Endings, func(a, b benchEnding) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

func (r *benchReport) writeJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(r)
}

// print writes the report for people.
func (r *benchReport) print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) } //nolint:errcheck // Flush returns the error
	row("LATENCY\tP50\tP90\tP99\tMAX\tN")
	for _, latency := range []struct {
		name string
		latencies
	}{{"first token", r.TTFT}, {"gap", r.Gap}} {
		if latency.N == 0 {
			row("%s\t-\t-\t-\t-\t0", latency.name)
			continue
		}
		row("%s\t%s\t%s\t%s\t%s\t%d", latency.name, benchMilliseconds(latency.P50), benchMilliseconds(latency.P90), benchMilliseconds(latency.P99), benchMilliseconds(latency.Max), latency.N)
	}
	row("")
	row("ENDING\tSTREAMS")
	for _, e := range r.Endings {
		row("%s\t%d", printable.Line(e.Reason), e.Count)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(to, r.notes())
	return err
}

// notes returns the lines below the tables.
func (r *benchReport) notes() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%.1f tokens a second, %.2f streams a second completed, in %.1f s\n", r.TokensPerSecond, r.StreamsPerSecond, r.Seconds)
	if !r.UsageKnown && r.Events > 0 {
		b.WriteString("no completed stream told its usage, so each event counts as one token\n")
	}
	if n := r.Streams.Waiting; n > 0 {
		fmt.Fprintf(&b, "streams without a first token when the time was over, which the latencies lack: %d\n", n)
	}
	if n := r.Streams.Unsent; n > 0 {
		fmt.Fprintf(&b, "streams that were due but did not begin, because all %d clients were busy, and which the latencies lack: %d\n", r.Clients, n)
	}
	for _, e := range r.Endings {
		if e.Example != "" {
			fmt.Fprintf(&b, "%s: %s\n", printable.Line(e.Reason), e.Example)
		}
	}
	return b.String()
}

func benchMilliseconds(ms float64) string {
	if ms < 10_000 {
		return fmt.Sprintf("%.1fms", ms)
	}
	return fmt.Sprintf("%.1fs", ms/1000)
}

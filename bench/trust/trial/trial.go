// Package trial runs one row: it starts the services, fills them with streams, has the row inject its
// fault, and follows every stream to its ending.
package trial

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/lab"
)

// A Finding is one measured figure of a row.
type Finding = report.Finding

// A Row is one fault of the table.
type Row struct {
	Name    string // in the catalogue of faults
	Layout  lab.Layout
	Prepare func(*Trial, *lab.Layout) error // starts what the services depend on, and adds their flags; may be nil
	Kept    bool                            // the streams are kept in Redis and read at another edge
	Paced   bool                            // the gaps between the texts of the streams are collected
	Tokens  int                             // of each stream; 0 means that no streams run
	// Play injects the fault while the streams of the trial run, and returns the figures of the row.
	// The trial adds the figures that every row has.
	Play func(ctx context.Context, t *Trial) ([]Finding, error)
	// Spared means that every stream must complete.
	Spared bool
}

// bound gives figures the bounds that the catalogue of faults has for them. Each bound needs a figure.
func (r *Row) bound(all []Finding) error {
	fault, ok := lab.FaultNamed(r.Name)
	if !ok {
		return fmt.Errorf("the catalogue has no fault %q", r.Name)
	}
	for i := range all {
		b := fault.Bound(all[i].What)
		all[i].Unit, all[i].Bound = b.Unit, b.Most
	}
	for _, b := range fault.Bounds {
		if !slices.ContainsFunc(all, func(f Finding) bool { return f.What == b.Figure }) {
			return fmt.Errorf("the row has no figure for the bound of %q", b.Figure)
		}
	}
	return nil
}

// A Trial is one run of a row: its processes and its streams.
type Trial struct {
	*lab.Path
	Others  []*lab.Process // such as Redis
	Builds  *Builds
	Streams int // that run when the fault is injected
	Row     Row

	Want    string // the text of every stream
	HTTP    *http.Client
	Reading sync.WaitGroup // the goroutines of all clients
	Readers []*reader.Reader
	Gaps    Gaps               // of the streams of a paced row
	Closers []io.Closer        // closed at the end of the row
	Held    time.Duration      // of the row that holds streams
	Key     string             // the API key of the streams; "" means none
	Leave   context.CancelFunc // makes all clients leave

	idle  map[*lab.Process]lab.Usage // before the streams
	begun atomic.Int64               // streams with text
	over  atomic.Int64               // streams that have ended
	asked atomic.Int64               // requests of Ask
}

// New returns the trial of a row. held is the duration of the row that holds streams.
func New(b *Builds, streams int, held time.Duration, r Row) *Trial {
	return &Trial{Path: &lab.Path{}, Builds: b, Streams: streams, Held: held, Row: r, Leave: func() {}, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// Run starts the services of the row, injects its fault, and stops the services.
func (t *Trial) Run(ctx context.Context) (all []Finding, err error) {
	defer t.end()
	l := t.Row.Layout
	if t.Row.Prepare != nil {
		if err := t.Row.Prepare(t, &l); err != nil {
			return nil, err
		}
	}
	if err := t.start(ctx, l); err != nil {
		return nil, err
	}
	if err := t.fill(ctx); err != nil {
		return nil, err
	}
	if err := t.AllRun(); err != nil {
		return nil, err
	}
	all, err = t.Row.Play(ctx, t)
	if err != nil {
		return nil, err
	}
	if err := t.Row.bound(all); err != nil {
		return nil, err
	}
	all = append(all, t.common(ctx)...)
	for i := range all {
		all[i].Row = t.Row.Name
	}
	return all, nil
}

// end makes the clients leave and stops all processes.
func (t *Trial) end() {
	t.Leave()
	t.Reading.Wait()
	t.End()
	for _, p := range t.Others {
		p.End()
	}
	for _, c := range t.Closers {
		_ = c.Close() // may be closed already
	}
}

// fill reads one stream undisturbed, to get the expected text, and opens the streams of the row. It
// returns when all have text.
func (t *Trial) fill(ctx context.Context) error {
	reading, leave := context.WithCancel(ctx)
	t.Leave = leave
	first := &reader.Reader{}
	first.Read(reading, t.client(t.Key), t.Edges[0].Addr, max(t.Row.Tokens, short))
	if first.Ending != reader.Completed {
		return fmt.Errorf("an undisturbed stream ends with %w", first.Err)
	}
	t.Want = first.Text()
	if err := t.rest(ctx); err != nil {
		return err
	}
	if t.Row.Tokens == 0 {
		return nil
	}
	if t.Row.Kept {
		return t.keep(reading, t.Streams)
	}
	t.open(reading, t.Streams)
	return t.flowing(ctx)
}

// rest records the goroutines and descriptors of the services at rest.
func (t *Trial) rest(ctx context.Context) error {
	t.idle = map[*lab.Process]lab.Usage{}
	for _, p := range t.Alive() {
		u, err := usage(ctx, p)
		if err != nil {
			return err
		}
		t.idle[p] = u
	}
	return nil
}

// flowing waits until all streams have text.
func (t *Trial) flowing(ctx context.Context) error {
	return lab.Await(ctx, "all streams have text", func() bool { return int(t.begun.Load()) >= t.Streams })
}

// open opens n streams at the first edge, in batches.
func (t *Trial) open(ctx context.Context, n int) {
	client := t.client(t.Key)
	for i := range n {
		r := t.newReader("trust-" + strconv.Itoa(len(t.Readers)))
		t.run(func() { r.Read(ctx, client, t.Edges[0].Addr, t.Row.Tokens) })
		if i%50 == 49 {
			time.Sleep(50 * time.Millisecond) // keeps the steps of the engine spread out
		}
	}
}

// AllRun returns an error if a stream has ended before the fault.
func (t *Trial) AllRun() error {
	if n := t.over.Load(); n > 0 {
		return fmt.Errorf("%d of %d streams have ended before the fault: the machine is too slow for this number", n, t.Streams)
	}
	return nil
}

// newReader adds a reader of one of the streams.
func (t *Trial) newReader(id string) *reader.Reader {
	r := &reader.Reader{ID: id, Want: t.Want, Flows: func() { t.begun.Add(1) }, Asked: time.Now()}
	if t.Row.Paced {
		r.OnText = t.Gaps.add
	}
	t.Readers = append(t.Readers, r)
	return r
}

// run reads one of the streams on a new goroutine.
func (t *Trial) run(read func()) {
	t.Reading.Go(func() {
		read()
		t.over.Add(1)
	})
}

// Finish waits until every reader has an ending. Readers that hang are made to leave.
func (t *Trial) Finish() {
	ended := make(chan struct{})
	go func() {
		t.Reading.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(lab.Patience + time.Duration(t.Row.Tokens)*time.Second/Pace):
		t.Leave()
		<-ended
	}
}

// common returns the figures that every row has.
func (t *Trial) common(ctx context.Context) []Finding {
	t.Finish()
	hangs, untold, wrong, broken := 0, 0, 0, 0
	for _, one := range t.Readers {
		if one.Ending == reader.Left { // Finish made the reader leave, here or in the row
			hangs++
		}
		if one.Ending == reader.Cut && (t.Row.Kept || !t.Edges[0].Ended()) {
			untold++
		}
		if one.Wrong() {
			wrong++
		}
		if t.Row.Spared && one.Ending != reader.Completed {
			broken++
			if broken == 1 {
				fmt.Fprintf(os.Stderr, "%s: a stream ends with %v\n", t.Row.Name, one.Err)
			}
		}
	}
	all := []Finding{
		{What: "streams that hang", Got: float64(hangs)}, {What: "streams that end without an ending", Got: float64(untold)},
		{What: "streams with lost or doubled text", Got: float64(wrong)},
	}
	if t.Row.Spared {
		all = append(all, Finding{What: "streams that fail", Got: float64(broken)})
	}
	t.Thaw()
	return append(all, t.Remaining(ctx)...)
}

// slack is the number of goroutines or descriptors by which a service may exceed the number at rest:
// connections that services keep open between each other, and runtime threads of a burst.
const slack = 50

// Remaining returns what the services still have of the streams, after at most 5 s.
func (t *Trial) Remaining(ctx context.Context) []Finding {
	var live float64
	var more lab.Usage
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		live, more = 0, lab.Usage{}
		for _, p := range t.Alive() {
			n, err := Sum(ctx, p, "whence_streams_live")
			if err != nil {
				n = 1 // the service does not answer
			}
			live += n
			if u, err := usage(ctx, p); err == nil {
				u = u.Since(t.idle[p])
				more.Goroutines, more.Descriptors = max(more.Goroutines, u.Goroutines), max(more.Descriptors, u.Descriptors)
			}
		}
		if live == 0 && more.Goroutines <= slack && more.Descriptors <= slack || time.Now().After(until) {
			break
		}
	}
	return []Finding{
		{What: "live streams 5 s afterwards", Got: live},
		{What: "goroutines of a service 5 s afterwards, more than before", Got: float64(more.Goroutines), Bound: slack},
		{What: "descriptors of a service 5 s afterwards, more than before", Got: float64(more.Descriptors), Bound: slack},
	}
}

// Pause waits until all streams have ended, and returns the longest pause of one.
func (t *Trial) Pause() Finding {
	t.Finish()
	return Finding{What: "longest pause of a stream", Got: InMillis(reader.Longest(t.Readers))}
}

// InMillis returns a duration as a figure.
func InMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

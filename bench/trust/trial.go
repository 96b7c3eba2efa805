package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/bench/trust/stand"
)

// A trial is one run of a row: its processes and its streams.
type trial struct {
	*stand.Stand
	builds  *stand.Builds
	streams int
	row     row

	want    string // the text of every stream
	http    *http.Client
	idle    map[*stand.Service]stand.Usage // before the streams
	reading sync.WaitGroup
	begun   atomic.Int64 // streams with text
	over    atomic.Int64 // streams that have ended
	readers []*reader.Reader
	leave   context.CancelFunc

	key   string // the API key of the streams; "" means none
	asked int    // requests of ask
}

func newTrial(b *stand.Builds, streams int, r row) *trial {
	return &trial{Stand: stand.New(b), builds: b, streams: streams, row: r, leave: func() {}, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// play starts the services of the row, injects its fault, and stops the services.
func (t *trial) play(ctx context.Context) (all []finding, err error) {
	defer t.end()
	l := t.row.layout
	if t.row.prepare != nil {
		if err := t.row.prepare(t, &l); err != nil {
			return nil, err
		}
	}
	if err := t.Start(ctx, l); err != nil {
		return nil, err
	}
	if err := t.fill(ctx); err != nil {
		return nil, err
	}
	if err := t.allRun(); err != nil {
		return nil, err
	}
	all, err = t.row.play(ctx, t)
	if err != nil {
		return nil, err
	}
	all = append(all, t.common(ctx)...)
	for i := range all {
		all[i].Row = t.row.name
	}
	return all, nil
}

// end makes the clients leave and stops all processes.
func (t *trial) end() {
	t.leave()
	t.reading.Wait()
	t.http.CloseIdleConnections()
	t.End()
}

// fill reads one stream undisturbed, to get the expected text, and opens the streams of the row. It
// returns when all have text.
func (t *trial) fill(ctx context.Context) error {
	reading, leave := context.WithCancel(ctx)
	t.leave = leave
	first := &reader.Reader{}
	first.Read(reading, t.client(t.key), t.Edges[0].Addr, max(t.row.tokens, short))
	if first.Ending != reader.Completed {
		return fmt.Errorf("an undisturbed stream ends with %w", first.Err)
	}
	t.want = first.Text()
	if err := t.rest(ctx); err != nil {
		return err
	}
	if t.row.tokens == 0 {
		return nil
	}
	if t.row.kept {
		return t.keep(reading, t.streams)
	}
	t.open(reading, t.streams)
	return t.flowing(ctx)
}

// rest records the goroutines and descriptors of the services at rest.
func (t *trial) rest(ctx context.Context) error {
	t.idle = map[*stand.Service]stand.Usage{}
	for _, p := range t.Alive() {
		u, err := p.Usage(ctx)
		if err != nil {
			return err
		}
		t.idle[p] = u
	}
	return nil
}

// flowing waits until all streams have text.
func (t *trial) flowing(ctx context.Context) error {
	return stand.Await(ctx, "all streams have text", func() bool { return int(t.begun.Load()) >= t.streams })
}

// open opens n streams at the first edge, in batches.
func (t *trial) open(ctx context.Context, n int) {
	client := t.client(t.key)
	for i := range n {
		r := t.newReader("trust-" + strconv.Itoa(len(t.readers)))
		t.run(func() { r.Read(ctx, client, t.Edges[0].Addr, t.row.tokens) })
		if i%50 == 49 {
			time.Sleep(50 * time.Millisecond) // keeps the steps of the engine spread out
		}
	}
}

// allRun returns an error if a stream has ended before the fault.
func (t *trial) allRun() error {
	if n := t.over.Load(); n > 0 {
		return fmt.Errorf("%d of %d streams have ended before the fault: the machine is too slow for this number", n, t.streams)
	}
	return nil
}

// newReader adds a reader of one of the streams.
func (t *trial) newReader(id string) *reader.Reader {
	r := &reader.Reader{ID: id, Want: t.want, Flows: func() { t.begun.Add(1) }, Asked: time.Now()}
	t.readers = append(t.readers, r)
	return r
}

// run reads one of the streams on a new goroutine.
func (t *trial) run(read func()) {
	t.reading.Go(func() {
		read()
		t.over.Add(1)
	})
}

// finish waits until every reader has an ending. Readers that hang are made to leave.
func (t *trial) finish() {
	ended := make(chan struct{})
	go func() {
		t.reading.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(stand.Within + time.Duration(t.row.tokens)*time.Second/stand.Pace):
		t.leave()
		<-ended
	}
}

// common returns the figures that every row has.
func (t *trial) common(ctx context.Context) []finding {
	t.finish()
	hangs, untold, wrong, broken := 0, 0, 0, 0
	for _, one := range t.readers {
		if one.Ending == reader.Left { // finish made the reader leave, here or in the row
			hangs++
		}
		if one.Ending == reader.Cut && (t.row.kept || !t.Dead(t.Edges[0])) {
			untold++
		}
		if one.Wrong() {
			wrong++
		}
		if t.row.spared && one.Ending != reader.Completed {
			broken++
			if broken == 1 {
				fmt.Fprintf(os.Stderr, "%s: a stream ends with %v\n", t.row.name, one.Err)
			}
		}
	}
	all := []finding{
		{What: "streams that hang", Got: float64(hangs)}, {What: "streams that end without an ending", Got: float64(untold)},
		{What: "streams with lost or doubled text", Got: float64(wrong)},
	}
	if t.row.spared {
		all = append(all, finding{What: "streams that fail", Got: float64(broken)})
	}
	t.Thaw()
	return append(all, t.remaining(ctx)...)
}

// slack is the number of goroutines or descriptors by which a service may exceed the number at rest:
// connections that services keep open between each other, and runtime threads of a burst.
const slack = 50

// remaining returns what the services still have of the streams, after at most 5 s.
func (t *trial) remaining(ctx context.Context) []finding {
	var live float64
	var more stand.Usage
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		live, more = 0, stand.Usage{}
		for _, p := range t.Alive() {
			n, err := p.Scrape(ctx, "whence_streams_live{")
			if err != nil {
				n = 1 // the service does not answer
			}
			live += n
			if u, err := p.Usage(ctx); err == nil {
				u = u.Since(t.idle[p])
				more.Goroutines, more.Descriptors = max(more.Goroutines, u.Goroutines), max(more.Descriptors, u.Descriptors)
			}
		}
		if live == 0 && more.Goroutines <= slack && more.Descriptors <= slack || time.Now().After(until) {
			break
		}
	}
	return []finding{
		{What: "live streams 5 s afterwards", Got: live},
		{What: "goroutines of a service 5 s afterwards, more than before", Got: float64(more.Goroutines), Bound: slack},
		{What: "descriptors of a service 5 s afterwards, more than before", Got: float64(more.Descriptors), Bound: slack},
	}
}

// pause waits until all streams have ended, and returns the longest pause of one.
func (t *trial) pause(bound time.Duration) finding {
	t.finish()
	return finding{What: "longest pause of a stream", Unit: report.Millis, Got: inMillis(reader.Longest(t.readers)), Bound: inMillis(bound)}
}

func inMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

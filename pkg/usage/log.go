package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// maxQueued is the maximum number of records that wait for one sink, which take about 4 MB.
	// Further records are lost.
	maxQueued = 8192
	// maxBatch is the maximum number of records per write.
	maxBatch = 256
	// giveUp bounds how long Close waits for a sink whose context has ended.
	giveUp = time.Second
	// logEvery is the minimum time between two log lines about losses of one sink.
	logEvery = time.Minute
)

// A Sink writes records. One goroutine calls its methods.
type Sink interface {
	// Name returns a word of an enum, for metrics and logs.
	Name() string
	// Write writes records in order, and returns how many of them it has written.
	Write(ctx context.Context, records []Record) (written int, err error)
	// Close writes buffered records, and closes the sink.
	Close(ctx context.Context) error
}

// A Count counts records that a sink has written, or that were lost.
type Count func(sink string, lost bool, records int)

// A Log passes records to sinks. A nil Log accepts all records and writes none. All methods are
// safe for concurrent use.
type Log struct{ queues []*queue }

// NewLog returns a log that writes to sinks. The caller must call Close.
func NewLog(log *slog.Logger, count Count, sinks ...Sink) *Log {
	l := &Log{}
	for _, sink := range sinks {
		l.queues = append(l.queues, newQueue(log, count, sink))
	}
	return l
}

// Add queues a record. It never blocks.
func (l *Log) Add(r Record) {
	if l == nil {
		return
	}
	for _, q := range l.queues {
		q.add(r)
	}
}

// Close writes the queued records as far as ctx allows, and closes the sinks. Records added after
// Close are lost.
func (l *Log) Close(ctx context.Context) error {
	errs := make([]error, len(l.queues))
	var closing sync.WaitGroup
	for i, q := range l.queues {
		closing.Go(func() { errs[i] = q.close(ctx) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// A queue holds the records that wait for one sink.
type queue struct {
	log   *slog.Logger
	count Count
	sink  Sink

	ctx    context.Context //nolint:containedctx // of the writes; canceled when Close gives up
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine of run has ended

	mu      sync.Mutex // guards the following fields
	waiting chan Record
	closed  bool
	lost    int       // lost records since the last log line
	logged  time.Time // when the last log line was written
}

func newQueue(log *slog.Logger, count Count, sink Sink) *queue {
	q := &queue{log: log, count: count, sink: sink, waiting: make(chan Record, maxQueued), done: make(chan struct{})}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	go q.run()
	return q
}

func (q *queue) add(r Record) {
	if !q.offer(r) {
		q.lose(1, errFull)
	}
}

// offer queues r, and reports whether the queue had room for it.
func (q *queue) offer(r Record) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	select {
	case q.waiting <- r:
		return true
	default:
		return false
	}
}

// errFull is the reason of a loss when the queue accepts no record.
var errFull = errors.New("the queue is full or closed")

// lose counts lost records, and logs losses at most once per logEvery.
func (q *queue) lose(n int, why error) {
	q.count(q.sink.Name(), true, n)
	if lost := q.due(n); lost > 0 { // without mu, because the log may be slow
		q.log.Error("usage records are lost", "sink", q.sink.Name(), "records", lost, "err", why)
	}
}

// due adds n lost records, and returns the number to log now.
func (q *queue) due(n int) (lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost += n
	if now := time.Now(); q.closed || now.Sub(q.logged) >= logEvery {
		lost, q.logged, q.lost = q.lost, now, 0
	}
	return lost
}

// run writes the records of the queue until it is closed.
func (q *queue) run() {
	defer close(q.done)
	batch := make([]Record, 0, maxBatch)
	for r := range q.waiting {
		batch = q.collect(append(batch[:0], r))
		written, err := q.sink.Write(q.ctx, batch)
		if written > 0 {
			q.count(q.sink.Name(), false, written)
		}
		if n := len(batch) - written; n > 0 {
			q.lose(n, err)
		}
		clear(batch)
	}
}

// collect adds queued records to a batch.
func (q *queue) collect(batch []Record) []Record {
	for len(batch) < maxBatch {
		select {
		case r, ok := <-q.waiting:
			if !ok {
				return batch
			}
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

func (q *queue) close(ctx context.Context) error {
	q.mu.Lock()
	first := !q.closed
	q.closed = true
	if first {
		close(q.waiting)
	}
	q.mu.Unlock()
	defer q.cancel()
	select {
	case <-q.done:
		return q.sink.Close(ctx)
	case <-ctx.Done():
	}
	q.cancel()
	select {
	case <-q.done: // the sink has given up, and the losses have been logged
		return errors.Join(context.Cause(ctx), q.sink.Close(ctx))
	case <-time.After(giveUp):
		return fmt.Errorf("the sink %s hangs: %d usage records are lost", q.sink.Name(), len(q.waiting))
	}
}

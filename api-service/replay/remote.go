package replay

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A followed is a stream of another instance that is read here.
type followed struct {
	head Head
	run  string // the process that has the stream

	// Guarded by Redis.mu.
	readers int
	grown   chan struct{} // closed, and replaced, when there may be more to read
	silent  time.Time     // since when its process gives no sign of life; zero if it does
	absent  time.Time     // since when the server does not know the stream; zero if it does
	ended   bool
}

func (f *followed) wake() {
	close(f.grown)
	f.grown = make(chan struct{})
}

// follow notes a reader.
func (r *Redis) follow(h Head, run string) *followed {
	r.mu.Lock()
	f := r.followed[h.ID]
	first := f == nil
	if first {
		f = &followed{head: h, run: run, grown: make(chan struct{})}
		r.followed[h.ID] = f
	}
	f.readers++
	r.mu.Unlock()
	if first {
		r.hearing.Lock()
		// If it fails, the library does it again when the server is back, and until then the beat wakes readers.
		_ = r.pubsub.Subscribe(r.closing, wakeName(h.ID))
		r.hearing.Unlock()
	}
	r.see(h)
	return f
}

// see notes that a stream is read here; the beat does so as long as it is.
func (r *Redis) see(h Head) {
	r.answered(r.db.Set(r.closing, seenKey(h.ID), "1", seenTTL).Err())
}

func (r *Redis) unfollow(f *followed) {
	r.mu.Lock()
	f.readers--
	last := f.readers == 0
	if last && r.followed[f.head.ID] == f {
		delete(r.followed, f.head.ID)
	}
	r.mu.Unlock()
	r.see(f.head)
	if last {
		r.deafen(f.head.ID)
	}
}

// deafen hears no more of a stream, unless somebody has come who reads it: a page that is reloaded leaves and comes at once.
func (r *Redis) deafen(id string) {
	r.hearing.Lock()
	defer r.hearing.Unlock()
	r.mu.Lock()
	read := r.followed[id] != nil
	r.mu.Unlock()
	if !read {
		_ = r.pubsub.Unsubscribe(r.closing, wakeName(id)) // a wake-up for nobody is none
	}
}

// listen wakes the readers of streams that have said more.
func (r *Redis) listen() {
	for message := range r.pubsub.Channel() {
		id := strings.TrimPrefix(message.Channel, wakeName(""))
		r.mu.Lock()
		if f := r.followed[id]; f != nil {
			f.wake()
		}
		r.mu.Unlock()
	}
}

// beat gives a sign of life for this process and for the readers that it has, looks for those of the processes that they read
// from, and wakes all readers, in case a wake-up was lost.
func (r *Redis) beat() {
	r.mu.Lock()
	all := make([]*followed, 0, len(r.followed))
	for _, f := range r.followed {
		if !f.ended {
			all = append(all, f)
		}
	}
	r.mu.Unlock()
	alive := make([]*redis.IntCmd, len(all))
	_, err := r.db.Pipelined(r.closing, func(p redis.Pipeliner) error {
		p.Set(r.closing, leaseKey(r.run), "1", leaseTTL)
		for i, f := range all {
			p.Set(r.closing, seenKey(f.head.ID), "1", seenTTL)
			alive[i] = p.Exists(r.closing, leaseKey(f.run))
		}
		return nil
	})
	r.answered(err)
	now := time.Now()
	for i, f := range all {
		r.mu.Lock()
		switch {
		case err != nil || alive[i].Val() == 1:
			f.silent = time.Time{}
		case f.silent.IsZero():
			f.silent = now
		}
		lost := !f.silent.IsZero() && now.Sub(f.silent) >= lostAfter
		f.wake()
		r.mu.Unlock()
		if lost {
			r.lose(f.head)
		}
	}
}

// lose closes a stream whose process has died.
func (r *Redis) lose(h Head) {
	e := r.config.Lost(h)
	r.answered(lose.Run(r.closing, r.db, []string{headKey(h.ID), logKey(h.ID)},
		h.Epoch, r.run, r.config.Limits.TTL.Milliseconds(), wakeName(h.ID), string(e.Kind), e.Data).Err())
}

type remoteReader struct {
	r    *Redis
	head Head
	run  string
	f    *followed // nil until it reads: who may not read keeps no stream alive
	read bool      // something, so that what it has read is there, or was
}

// Head implements Reader.
func (m *remoteReader) Head() Head { return m.head }

// Close implements Reader.
func (m *remoteReader) Close() {
	if m.f != nil {
		m.r.unfollow(m.f)
	}
}

// Read implements Reader. A server that is down, or has lost the stream, is waited for: the stream may go on.
func (m *remoteReader) Read(ctx context.Context, after uint64) (Page, error) {
	if m.f == nil {
		m.f = m.r.follow(m.head, m.run)
	}
	r, f := m.r, m.f
	r.mu.Lock()
	more := f.grown // before reading, so that nothing is missed
	r.mu.Unlock()
	var entries *redis.XMessageSliceCmd
	var state *redis.SliceCmd
	_, err := r.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		state = p.HMGet(ctx, headKey(f.head.ID), "epoch", "last", "ended", "forgotten")
		entries = p.XRangeN(ctx, logKey(f.head.ID), strconv.FormatUint(after+1, 10)+"-0", "+", maxBatch)
		return nil
	})
	r.answered(err)
	if err != nil {
		return Page{More: more}, nil // it is noted, and the beat wakes us
	}
	fields := state.Val()
	last, _ := fields[1].(string)
	said, _ := strconv.ParseUint(last, 10, 64)
	switch {
	case fields[3] != nil:
		return Page{}, ErrUnknown
	case fields[0] == f.head.Epoch && after > said && !m.read:
		return Page{}, ErrAhead
	case fields[0] != f.head.Epoch, after > said:
		return m.absent(more)
	}
	m.read = true
	events, err := parse(entries.Val())
	if err != nil {
		return Page{}, err
	}
	p := Page{Events: merge(events)}
	upto := after
	if len(events) > 0 {
		upto = events[len(events)-1].Seq
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f.absent = time.Time{}
	if p.Ended = fields[2] != nil && upto == said; !p.Ended {
		p.More = more
	}
	f.ended = f.ended || p.Ended
	return p, nil
}

// absent is what a reader gets of a stream that the server has lost, all of it or its last events. If it has restarted, the
// instance that runs the stream writes it again.
func (m *remoteReader) absent(more <-chan struct{}) (Page, error) {
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	switch since := &m.f.absent; {
	case since.IsZero():
		*since = time.Now()
	case time.Since(*since) > leaseTTL:
		return Page{}, ErrUnknown
	}
	return Page{More: more}, nil
}

func parse(entries []redis.XMessage) ([]Event, error) {
	events := make([]Event, 0, len(entries))
	for _, entry := range entries {
		digits, _, _ := strings.Cut(entry.ID, "-")
		seq, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return nil, err
		}
		kind, _ := entry.Values["kind"].(string)
		data, _ := entry.Values["data"].(string)
		events = append(events, Event{seq, Kind(kind), data})
	}
	return events, nil
}

// merge puts deltas that follow each other together.
func merge(events []Event) []Event {
	var out []Event
	for from := 0; from < len(events); {
		to, size := from+1, len(events[from].Data)
		for events[from].Kind == Delta && to < len(events) && events[to].Kind == Delta && size+len(events[to].Data) <= maxMerged {
			size += len(events[to].Data)
			to++
		}
		var text strings.Builder
		text.Grow(size)
		for _, part := range events[from:to] {
			text.WriteString(part.Data)
		}
		out = append(out, Event{events[to-1].Seq, events[from].Kind, text.String()})
		from = to
	}
	return out
}

package redislog

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A remoteStream is a stream of another instance that has readers here.
type remoteStream struct {
	head replay.Head

	// Guarded by Log.mu.
	readers int
	grown   chan struct{} // closed, and replaced, when there may be more to read
	absent  time.Time     // since when the server has not known the stream; zero if it knows it
	ended   bool
}

func (s *remoteStream) wake() {
	close(s.grown)
	s.grown = make(chan struct{})
}

// follow counts a reader of a remote stream. The first reader of an id subscribes to it.
func (l *Log) follow(h replay.Head) *remoteStream {
	l.mu.Lock()
	streams := l.remote[h.ID]
	first := len(streams) == 0
	i := slices.IndexFunc(streams, func(s *remoteStream) bool { return s.head.Epoch == h.Epoch })
	if i < 0 {
		i = len(streams)
		streams = append(streams, &remoteStream{head: h, grown: make(chan struct{})})
		l.remote[h.ID] = streams
	}
	s := streams[i]
	s.readers++
	l.mu.Unlock()
	if first {
		l.subscribing.Lock()
		// If this fails, the library subscribes when the server is back. Until then the heartbeat
		// wakes readers.
		_ = l.pubsub.Subscribe(l.closing, wakeName(h.ID))
		l.subscribing.Unlock()
	}
	l.see(h)
	return s
}

// see records on the server that a stream is being read here. The heartbeat repeats the record.
func (l *Log) see(h replay.Head) {
	l.answered(l.db.Set(l.closing, seenKey(h.ID), "1", seenTTL).Err())
}

func (l *Log) unfollow(s *remoteStream) {
	l.mu.Lock()
	s.readers--
	last := false
	if s.readers == 0 {
		others := slices.DeleteFunc(l.remote[s.head.ID], func(other *remoteStream) bool { return other == s })
		l.remote[s.head.ID] = others
		if last = len(others) == 0; last {
			delete(l.remote, s.head.ID)
		}
	}
	l.mu.Unlock()
	l.see(s.head)
	if last {
		l.unsubscribe(s.head.ID)
	}
}

// unsubscribe ends the subscription to the streams of an id, unless a new reader has arrived: a
// page that is reloaded leaves and reconnects at once.
func (l *Log) unsubscribe(id string) {
	l.subscribing.Lock()
	defer l.subscribing.Unlock()
	l.mu.Lock()
	read := len(l.remote[id]) > 0
	l.mu.Unlock()
	if !read {
		_ = l.pubsub.Unsubscribe(l.closing, wakeName(id)) // a message without a reader does no harm
	}
}

// listen wakes the readers of streams that have new events.
func (l *Log) listen() {
	for message := range l.pubsub.Channel() {
		id := strings.TrimPrefix(message.Channel, wakeName(""))
		l.mu.Lock()
		for _, s := range l.remote[id] {
			s.wake()
		}
		l.mu.Unlock()
	}
}

// showReaders refreshes the records of streams that are being read here, and wakes all readers, in
// case a message was lost.
func (l *Log) showReaders() {
	l.mu.Lock()
	all := make([]*remoteStream, 0, len(l.remote))
	for _, streams := range l.remote {
		for _, s := range streams {
			if !s.ended {
				all = append(all, s)
			}
			s.wake()
		}
	}
	l.mu.Unlock()
	if len(all) == 0 {
		return
	}
	_, err := l.db.Pipelined(l.closing, func(p redis.Pipeliner) error {
		for _, s := range all {
			p.Set(l.closing, seenKey(s.head.ID), "1", seenTTL)
		}
		return nil
	})
	l.answered(err)
}

// A remoteReader reads a stream of another instance.
type remoteReader struct {
	log    *Log
	head   replay.Head
	stream *remoteStream // nil until the first Read: a caller without access must not keep a stream alive
	known  bool          // a Read has found the stream, so it exists or has existed
	ahead  time.Time     // when the first Read had a cursor ahead of the stream; zero if none had
}

// Head implements replay.Reader.
func (r *remoteReader) Head() replay.Head { return r.head }

// Close implements replay.Reader.
func (r *remoteReader) Close() {
	if r.stream != nil {
		r.log.unfollow(r.stream)
	}
}

// Read implements replay.Reader. While the server is down, or has lost the stream, Read returns a
// page without events whose Missed has the reason, because the stream may continue.
func (r *remoteReader) Read(ctx context.Context, after uint64) (replay.Page, error) {
	if r.stream == nil {
		r.stream = r.log.follow(r.head)
	}
	l, s := r.log, r.stream
	l.mu.Lock()
	more := s.grown // taken before reading, so that no wake-up is missed
	l.mu.Unlock()
	var entries *redis.XMessageSliceCmd
	var fields *redis.SliceCmd
	_, err := l.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		fields = p.HMGet(ctx, headKey(s.head.ID), "epoch", "state", "last", "seams")
		entries = p.XRangeN(ctx, logKey(s.head.ID), strconv.FormatUint(after+1, 10)+"-0", "+", maxBatch)
		return nil
	})
	l.answered(err)
	if err != nil {
		return replay.Page{More: more, Missed: unavailable(err)}, nil // answered has logged the error, and the heartbeat wakes the reader
	}
	if len(fields.Val()) != 4 {
		return replay.Page{More: more, Missed: unavailable(errAnswer)}, nil
	}
	epoch, state := fields.Val()[0], fields.Val()[1]
	digits, _ := fields.Val()[2].(string)
	last, _ := strconv.ParseUint(digits, 10, 64)
	switch {
	case epoch != s.head.Epoch:
		return r.absent(more)
	case state == stateForgotten:
		return replay.Page{}, replay.ErrUnknown
	case r.lost(fields.Val()[3], after):
		return replay.Page{}, replay.ErrAhead
	case after > last && !r.known && state == stateEnded:
		return replay.Page{}, replay.ErrAhead
	case after > last && !r.known:
		return r.wait(more)
	case after > last:
		return r.absent(more)
	}
	r.known = true
	events, err := parseEntries(entries.Val(), after)
	if err != nil {
		return replay.Page{}, unavailable(err)
	}
	p := replay.Page{Events: mergeEvents(events)}
	upto := after
	if len(events) > 0 {
		upto = events[len(events)-1].Seq
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.absent = time.Time{}
	if p.Ended = state == stateEnded && upto == last; !p.Ended {
		p.More = more
	}
	s.ended = s.ended || p.Ended
	return p, nil
}

// Closing implements replay.Reader.
func (r *remoteReader) Closing(ctx context.Context) (replay.Event, error) {
	var entries *redis.XMessageSliceCmd
	var fields *redis.SliceCmd
	_, err := r.log.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		fields = p.HMGet(ctx, headKey(r.head.ID), "epoch", "state")
		entries = p.XRevRangeN(ctx, logKey(r.head.ID), "+", "-", 1)
		return nil
	})
	r.log.answered(err)
	if err != nil {
		return replay.Event{}, unavailable(err)
	}
	events, err := parseEntries(entries.Val(), 0)
	switch known := fields.Val(); {
	case err != nil:
		return replay.Event{}, unavailable(err)
	case len(known) != 2:
		return replay.Event{}, unavailable(errAnswer)
	case known[0] != r.head.Epoch, known[1] == stateForgotten, known[1] == stateEnded && len(events) == 0:
		return replay.Event{}, replay.ErrUnknown
	case known[1] != stateEnded:
		return replay.Event{}, replay.ErrOpen
	default:
		return events[0], nil
	}
}

// lost reports whether the cursor names an event that an earlier owner of the stream has shown
// without writing it.
func (r *remoteReader) lost(field any, after uint64) bool {
	text, _ := field.(string)
	seams, err := replay.ParseSeams(text)
	return err == nil && seams.Lost(after)
}

// errAbsent is the reason why a reader misses events that the server has lost, and may get again.
var errAbsent = &streamerr.Error{Reason: streamerr.Unavailable, Message: "the events of the stream cannot be read now, because redis has lost them", RetryAfter: time.Second}

// absent returns the page of a stream that the server has lost completely, or whose last events it
// has lost. If the server has restarted, the owner of the stream writes it again.
func (r *remoteReader) absent(more <-chan struct{}) (replay.Page, error) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	switch since := &r.stream.absent; {
	case since.IsZero():
		*since = time.Now()
	case time.Since(*since) > r.log.config.timeouts.restore:
		return replay.Page{}, replay.ErrUnknown
	}
	return replay.Page{More: more, Missed: errAbsent}, nil
}

// wait returns the page of a reader whose cursor is ahead of a stream that has not ended. The owner
// of the stream may have shown its readers more events than it has written, because the server was
// down, or may be rewriting all events, or may have died. After timeouts.ahead the cursor counts as
// wrong.
func (r *remoteReader) wait(more <-chan struct{}) (replay.Page, error) {
	if r.ahead.IsZero() {
		r.ahead = time.Now()
	}
	if time.Since(r.ahead) > r.log.config.timeouts.ahead {
		return replay.Page{}, replay.ErrAhead
	}
	return replay.Page{More: more}, nil
}

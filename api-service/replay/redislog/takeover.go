package redislog

import (
	"context"
	"strconv"

	"github.com/whence-dev/whence/api-service/replay"
)

// maxTakeovers bounds the takeovers of one stream: its request may be what crashes instances.
const maxTakeovers = 3

// inherits reports whether this process takes over streams now.
func (l *Log) inherits() bool {
	return l.config.TakeOver != nil && !l.retired.Load() && (l.config.Room == nil || l.config.Room())
}

// A claim is a takeover of a stream by this process that may have to be repeated.
type claim struct {
	head       replay.Head // as the earlier instance left it
	handedOver bool
}

// Retire makes this process take over no more streams. After Retire has returned, Config.TakeOver
// is not called any more.
func (l *Log) Retire() {
	l.retired.Store(true)
	l.taking.Lock() // a takeover that has begun ends first
	defer l.taking.Unlock()
}

// repeat puts a takeover on the list for a later beat.
func (l *Log) repeat(c claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsure = append(l.unsure, c)
}

// give ends a stream that this process has taken over but cannot continue.
func (l *Log) give(h replay.Head, err error) {
	l.config.Log.Warn("a stream that was taken over cannot be continued, and ends", "stream", h.ID, "from", h.Edge, "err", err)
	l.others.Go(func() {
		for {
			if _, err := l.lose(h, l.run); err == nil || !l.pause() {
				return
			}
		}
	})
}

// lose ends a stream with the closing event of Config.Lost. owner is the dead instance, or this
// one. lose returns false if the owner is alive or the stream has ended.
func (l *Log) lose(h replay.Head, owner string) (done bool, err error) {
	return l.loseAfter(h, owner, "")
}

// loseUnclaimed is lose for a stream that another instance can take over. It returns false if there
// is such an instance. Only the server knows that: since the last beat of this process, an instance
// may have come or may have got room.
func (l *Log) loseUnclaimed(h replay.Head, owner string) (done bool, err error) {
	return l.loseAfter(h, owner, strconv.FormatInt(l.config.Lease.Milliseconds(), 10))
}

func (l *Log) loseAfter(h replay.Head, owner, grace string) (done bool, err error) {
	e := l.config.Lost(h)
	n, err := loseScript.Run(l.closing, l.db, append(keysOf(h, owner), leasesKey, heirsKey),
		h.ID, h.Epoch, l.run, l.config.Limits.KeepsFor(h).Milliseconds(), wakeName(h.ID), string(e.Kind), e.Data, owner, grace).Int()
	l.answered(err)
	return n == 1, err
}

// awaitShipped waits until the server has all events of a stream.
func (l *Log) awaitShipped(ctx context.Context, w *replay.Writer) bool {
	r, err := l.local.Open(ctx, w.Head().ID)
	if err != nil {
		return false
	}
	defer r.Close()
	for after := uint64(0); ; {
		p, err := r.Read(ctx, after)
		switch {
		case err != nil || p.Ended:
			return false
		case len(p.Events) > 0:
			after = p.Events[len(p.Events)-1].Seq
			continue
		case w.Shipped():
			return true
		}
		select {
		case <-p.More:
		case <-ctx.Done():
			return false
		}
	}
}

// HandOver implements replay.Log. It waits for the remaining writes, for at most timeouts.server.
func (l *Log) HandOver(ctx context.Context, id, epoch string) bool {
	w, err := l.local.Writer(id, epoch)
	if err != nil || w.Head().Form == "" || !w.Head().Shared || l.downSince.Load() != 0 {
		return false
	}
	h := w.Head()
	ctx, cancel := context.WithTimeout(ctx, l.config.timeouts.server)
	defer cancel()
	if !l.awaitShipped(ctx, w) {
		return false
	}
	if !l.leaveToOthers(ctx, h, w.Continued()) {
		return false
	}
	l.local.Drop(id, epoch)
	l.config.Log.Info("stream handed over", "stream", id, "hop", h.Edge)
	return true
}

// leaveToOthers leaves a stream of this process to any other instance that takes over streams. ran
// means that this process has run the stream, and has not only taken it over. leaveToOthers returns
// false if there is no other instance.
func (l *Log) leaveToOthers(ctx context.Context, h replay.Head, ran bool) bool {
	mark := ""
	if ran {
		mark = "1"
	}
	keys := []string{headKey(h.ID), streamsKey(l.run), streamsKey(abandoned), leasesKey, heirsKey}
	n, err := handOverScript.Run(ctx, l.db, keys, h.ID, h.Epoch, l.run, liveTTL.Milliseconds(), mark).Int()
	l.answered(err)
	return n == 1
}

// Stop implements replay.Log.
func (l *Log) Stop(ctx context.Context, id, cause string, heard bool, allowed func(replay.Head) bool) bool {
	field := "stop"
	if heard {
		field = "stopped"
	}
	if heard && l.downSince.Load() != 0 {
		return false // the running instance learns of the stop anyway, so do not wait for the server
	}
	h, err := l.head(ctx, id)
	if err != nil || !allowed(h) {
		return false
	}
	n, err := stopScript.Run(ctx, l.db, []string{headKey(id)}, h.Epoch, cause, field).Int()
	l.answered(err)
	return n == 1
}

// fenced drops a stream that another instance has ended or taken over. The readers here continue on
// the server.
func (l *Log) fenced(h replay.Head) {
	l.config.Log.Warn("other instances considered this one dead, and one of them has ended its stream or taken it over", "stream", h.ID, "hop", h.Edge)
	l.local.Drop(h.ID, h.Epoch)
	if l.config.Fenced != nil {
		l.config.Fenced(h)
	}
}

package redislog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/replay/redislog/entry"
	"github.com/whence-dev/whence/api-service/replay/redislog/script"
)

const (
	// maxTakeovers bounds the takeovers of one stream: its request may be what kills instances.
	maxTakeovers = 3
	// burySize is the number of streams of a dead instance that are looked at together, and buryAtOnce how
	// many of them at the same time.
	burySize   = 64
	buryAtOnce = 8
)

// inherits reports whether this process takes over streams now.
func (l *Log) inherits() bool {
	return l.config.TakeOver != nil && !l.retired.Load() && (l.config.Room == nil || l.config.Room())
}

// A claim is the takeover of a stream by this process that may have to be repeated.
type claim struct {
	head       replay.Head // as the earlier instance left it
	handedOver bool
}

// Retire has this process take over no more streams. When it returns, Config.TakeOver is not called any more.
func (l *Log) Retire() {
	l.retired.Store(true)
	l.taking.Lock() // a takeover that has begun ends first
	defer l.taking.Unlock()
}

// buryAll takes over, or ends, the streams of dead instances, until the log is closed.
func (l *Log) buryAll() {
	for {
		select {
		case runs := <-l.dead:
			for _, run := range runs {
				if err := l.bury(run); err != nil {
					l.answered(err)
				}
			}
		case <-l.closing.Done():
			return
		}
	}
}

// bury takes over, or ends, the streams of one dead instance. Other instances do so at the same time. For this
// process it repeats the takeovers that it could not complete.
func (l *Log) bury(run string) error {
	if run == l.run {
		return l.repeatTakeovers()
	}
	ids, err := l.db.SRandMemberN(l.closing, streamsKey(run), burySize).Result()
	for ; err == nil && len(ids) > 0; ids, err = l.db.SRandMemberN(l.closing, streamsKey(run), burySize).Result() {
		if !l.buryStreams(run, ids) {
			return nil // the instance lives again, or this process leaves the streams to others: a later beat looks again
		}
	}
	if err != nil || run == abandoned {
		return err
	}
	return script.Bury.Run(l.closing, l.db, []string{leasesKey, heirsKey, streamsKey(run)}, run).Err()
}

// repeatTakeovers repeats the takeovers of streams that this process may own, and has not loaded.
func (l *Log) repeatTakeovers() error {
	l.taking.RLock()
	defer l.taking.RUnlock()
	if l.retired.Load() {
		return nil // the others take them over when the lease of this process ends
	}
	l.mu.Lock()
	unsure := l.unsure
	l.unsure = nil
	l.mu.Unlock()
	var failed error
	for _, c := range unsure {
		if _, err := l.local.Writer(c.head.ID, c.head.Epoch); err == nil {
			continue // a later beat found the stream with the dead instance, and it runs here
		}
		if _, err := l.takeOver(c, l.run); err != nil {
			failed = errors.Join(failed, err) // it is in the list again
		}
	}
	return failed
}

// buryStreams takes over, or ends, streams of a dead instance. It reports whether it has done so for any.
func (l *Log) buryStreams(run string, ids []string) (any bool) {
	var all sync.WaitGroup
	var mu sync.Mutex
	places := make(chan struct{}, buryAtOnce)
	for _, id := range ids {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			done, err := l.settle(run, id)
			if err != nil && l.closing.Err() == nil {
				l.config.Log.Warn("a stream of a dead instance cannot be taken over now", "stream", id, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			any = any || done
		})
	}
	all.Wait()
	return any
}

// settle takes over, or ends, one stream of a dead instance. It returns false if the stream is left to others.
func (l *Log) settle(run, id string) (done bool, err error) {
	h, fields, err := l.head(l.closing, id)
	owner := fields["run"]
	switch {
	case errors.Is(err, replay.ErrUnknown), err == nil && owner != run, err == nil && fields["state"] != script.Live && fields["state"] != script.Beginning:
		return true, l.db.SRem(l.closing, streamsKey(run), id).Err() // it has ended, or another instance has it
	case err != nil:
		return false, err
	}
	seams, err := replay.ParseSeams(fields["seams"])
	if err != nil {
		return false, err
	}
	if h.Form == "" || fields["state"] == script.Beginning || len(seams) >= maxTakeovers {
		return l.lose(h, run)
	}
	l.taking.RLock()
	defer l.taking.RUnlock()
	switch {
	case l.inherits():
		return l.takeOver(claim{h, run == abandoned && fields["handed"] != ""}, run)
	case l.retired.Load() || l.heirs.Load() > 0:
		return false, nil
	default:
		return l.lose(h, run)
	}
}

// takeOver makes this process the owner of a stream of the instance owner, and has the stream continued.
func (l *Log) takeOver(c claim, owner string) (done bool, err error) {
	h := c.head
	keys := append(keysOf(h, owner), streamsKey(l.run), leasesKey)
	answer, err := script.Take.Run(l.closing, l.db, keys, h.ID, h.Epoch, owner, l.run, liveTTL.Milliseconds(), l.config.Name).StringSlice()
	l.answered(err)
	if err != nil {
		l.repeat(c)
	}
	if err != nil || len(answer) != 3 {
		return false, err
	}
	o := replay.Orphan{Head: h, HandedOver: c.handedOver, Stop: answer[2]}
	age, _ := strconv.ParseInt(answer[0], 10, 64)
	o.Age = time.Duration(age) * time.Millisecond
	seams, err := replay.ParseSeams(answer[1])
	if err != nil {
		l.give(h, err)
		return true, nil
	}
	o.Head.Request, o.Deltas, err = l.load(h)
	switch {
	case errors.Is(err, errUnreadable):
		l.give(h, err)
		return true, nil
	case err != nil: // this process owns the stream, so no other one tries again
		l.repeat(c)
		return false, err
	}
	own := o.Head
	own.Edge = l.config.Name
	w, err := l.local.Resume(own, seams, o.Deltas)
	switch {
	case errors.Is(err, replay.ErrFull) && l.leaveToOthers(l.closing, h, false):
		return true, nil
	case err != nil:
		l.give(h, err)
		return true, nil
	}
	l.startShipping(w, seams.Number(uint64(len(o.Deltas))))
	l.config.Log.Info("stream taken over", "stream", h.ID, "from", h.Edge, "events", len(o.Deltas), "age", o.Age, "handed_over", o.HandedOver)
	l.config.TakeOver(o)
	return true, nil
}

// repeat has a later beat repeat a takeover.
func (l *Log) repeat(c claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsure = append(l.unsure, c)
}

// give ends a stream that this process has taken over and cannot continue.
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

// errUnreadable is the error of load for a stream that no instance can load.
var errUnreadable = errors.New("replay: the server does not have all of the stream")

// load returns the request of a stream and its events.
func (l *Log) load(h replay.Head) (request string, deltas []replay.Event, err error) {
	request, err = l.db.Get(l.closing, requestKey(h.ID)).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", nil, fmt.Errorf("%w: its request is missing", errUnreadable)
	case err != nil:
		return "", nil, err
	}
	for after := "0"; ; {
		page, err := l.db.XRangeN(l.closing, logKey(h.ID), "("+after, "+", maxBatch).Result()
		if err != nil {
			return "", nil, err
		}
		events, err := entry.Parse(page)
		if err != nil {
			return "", nil, fmt.Errorf("%w: %w", errUnreadable, err)
		}
		deltas = append(deltas, events...)
		if len(page) < maxBatch {
			return request, deltas, nil
		}
		after = page[len(page)-1].ID
	}
}

// lose ends a stream with the closing event of Config.Lost. owner is the instance that has died, or this one.
func (l *Log) lose(h replay.Head, owner string) (done bool, err error) {
	e := l.config.Lost(h)
	n, err := script.Lose.Run(l.closing, l.db, append(keysOf(h, owner), leasesKey),
		h.ID, h.Epoch, l.run, l.config.Limits.TTL.Milliseconds(), wakeName(h.ID), string(e.Kind), e.Data, owner).Int()
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

// HandOver implements replay.Log. It waits for the writes that are left, for at most serverTimeout.
func (l *Log) HandOver(ctx context.Context, id, epoch string) bool {
	w, err := l.local.Writer(id, epoch)
	if err != nil || w.Head().Form == "" || !w.Head().Shared || l.downSince.Load() != 0 {
		return false
	}
	h := w.Head()
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
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

// leaveToOthers leaves a stream of this process to any other instance that takes over streams. ran says that this
// process has run it, and not only taken it over. leaveToOthers returns false if there is no other instance.
func (l *Log) leaveToOthers(ctx context.Context, h replay.Head, ran bool) bool {
	mark := ""
	if ran {
		mark = "1"
	}
	keys := []string{headKey(h.ID), streamsKey(l.run), streamsKey(abandoned), leasesKey, heirsKey}
	n, err := script.HandOver.Run(ctx, l.db, keys, h.ID, h.Epoch, l.run, liveTTL.Milliseconds(), mark).Int()
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
		return false // nobody waits for it
	}
	h, _, err := l.head(ctx, id)
	if err != nil || !allowed(h) {
		return false
	}
	n, err := script.Stop.Run(ctx, l.db, []string{headKey(id)}, h.Epoch, cause, field).Int()
	l.answered(err)
	return n == 1
}

// fenced drops a stream that another instance has ended or taken over: its readers here read on from the
// server.
func (l *Log) fenced(h replay.Head) {
	l.config.Log.Warn("other instances took this one for dead, and one of them has ended its stream or taken it over", "stream", h.ID, "hop", h.Edge)
	l.local.Drop(h.ID, h.Epoch)
	if l.config.Fenced != nil {
		l.config.Fenced(h)
	}
}

package redislog

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/replay"
)

const (
	// burySize is the number of streams of a dead instance that this process picks at a time. Other
	// instances pick theirs meanwhile.
	burySize = 256
	// batchSize is the number of streams that one call to the server settles, and batchesAtOnce the
	// number of batches that are settled at the same time. Together they bound the requests, memos
	// and events that are loaded and not yet charged to an owner.
	batchSize     = 32
	batchesAtOnce = 2
	// repeatSize is batchSize for takeovers that have failed once: a batch may have been larger than
	// the replies that the log receives at a time.
	repeatSize = 1
	// maxAge bounds the age of a stream that is taken over.
	maxAge = 365 * 24 * time.Hour
)

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

// bury takes over, or ends, the streams of one dead instance. Other instances do so at the same
// time. For this process itself, bury repeats the takeovers that it could not complete.
func (l *Log) bury(run string) error {
	if run == l.run {
		return l.repeatTakeovers()
	}
	ids, err := l.claims.SRandMemberN(l.closing, streamsKey(run), burySize).Result()
	for ; err == nil && len(ids) > 0; ids, err = l.claims.SRandMemberN(l.closing, streamsKey(run), burySize).Result() {
		if !l.settleAll(run, ids) {
			return nil // the instance is alive again, or this process leaves the streams to others; a later beat checks again
		}
	}
	if err != nil || run == abandoned {
		return err
	}
	return buryScript.Run(l.closing, l.claims, []string{leasesKey, heirsKey, streamsKey(run)}, run).Err()
}

// repeatTakeovers repeats the takeovers of streams that this process may own and has not loaded.
func (l *Log) repeatTakeovers() error {
	l.taking.RLock()
	defer l.taking.RUnlock()
	if l.retired.Load() {
		return nil // other instances take the streams over when the lease of this process ends
	}
	l.mu.Lock()
	unsure := l.unsure
	l.unsure = nil
	l.mu.Unlock()
	unsure = slices.DeleteFunc(unsure, func(c claim) bool {
		_, err := l.local.Writer(c.head.ID, c.head.Epoch)
		return err == nil // a later beat has found the stream with the dead instance, and it runs here now
	})
	var failed error
	for batch := range slices.Chunk(unsure, repeatSize) {
		if _, err := l.takeOver(batch, l.run); err != nil {
			failed = errors.Join(failed, err) // takeOver has put the claims on the list again
		}
	}
	return failed
}

// settleAll takes over, or ends, streams of a dead instance. It reports whether it has settled any.
func (l *Log) settleAll(run string, ids []string) bool {
	var all sync.WaitGroup
	var settled atomic.Bool
	places := make(chan struct{}, batchesAtOnce)
	for batch := range slices.Chunk(ids, batchSize) {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			done, err := l.settle(run, batch)
			if err != nil && l.closing.Err() == nil {
				l.config.Log.Warn("streams of a dead instance cannot be taken over now", "streams", len(batch), "err", err)
			}
			if done {
				settled.Store(true)
			}
		})
	}
	all.Wait()
	return settled.Load()
}

// settle takes over, or ends, a batch of streams of a dead instance. It returns false if it leaves
// all of them to other instances.
func (l *Log) settle(run string, ids []string) (done bool, err error) {
	heads := make([]*redis.MapStringStringCmd, len(ids))
	_, err = l.claims.Pipelined(l.closing, func(p redis.Pipeliner) error {
		for i, id := range ids {
			heads[i] = p.HGetAll(l.closing, headKey(id))
		}
		return nil
	})
	l.answered(err)
	if err != nil {
		return false, err
	}
	l.taking.RLock()
	defer l.taking.RUnlock()
	inherits := l.inherits()
	leaves := l.retired.Load()
	var claims []claim
	var failed error
	for i, id := range ids {
		fields := heads[i].Val()
		h, seams, err := parseHead(id, fields)
		settled := false
		switch {
		case errors.Is(err, replay.ErrUnknown), err == nil && (fields["run"] != run || fields["state"] != stateLive && fields["state"] != stateBeginning):
			settled, err = true, l.claims.SRem(l.closing, streamsKey(run), id).Err() // the stream has ended, or another instance has it
		case err != nil:
		case h.Form == "" || fields["state"] == stateBeginning || len(seams) >= maxTakeovers:
			settled, err = l.lose(h, run)
		case inherits:
			claims = append(claims, claim{h, run == abandoned && fields["handed"] != ""})
		case leaves:
		default: // this process has no room, or takes over no streams
			settled, err = l.loseUnclaimed(h, run)
		}
		done, failed = done || settled, errors.Join(failed, err)
	}
	if len(claims) > 0 {
		taken, err := l.takeOver(claims, run)
		done, failed = done || taken, errors.Join(failed, err)
	}
	return done, failed
}

// A takeover has the commands with which this process takes one stream over.
type takeover struct {
	claim   claim
	answer  *redis.Cmd // of the script Take
	request *redis.StringCmd
	log     *redis.XMessageSliceCmd // the first page
}

// takeOver makes this process the owner of streams of the instance owner, and passes the streams to
// Config.TakeOver. One call to the server claims all of them and loads them. takeOver reports whether it
// has settled any.
func (l *Log) takeOver(claims []claim, owner string) (done bool, err error) {
	all := make([]takeover, len(claims))
	_, err = l.claims.Pipelined(l.closing, func(p redis.Pipeliner) error {
		takeScript.Load(l.closing, p)
		for i, c := range claims {
			keys := append(keysOf(c.head, owner), streamsKey(l.run), leasesKey)
			all[i] = takeover{
				claim:   c,
				answer:  takeScript.EvalSha(l.closing, p, keys, c.head.ID, c.head.Epoch, owner, l.run, liveTTL.Milliseconds(), l.config.Name),
				request: p.Get(l.closing, requestKey(c.head.ID)),
				log:     p.XRangeN(l.closing, logKey(c.head.ID), "-", "+", maxBatch),
			}
		}
		return nil
	})
	if errors.Is(err, redis.Nil) {
		err = nil // a request is missing; finish finds out which
	}
	l.answered(err)
	err = nil
	for i := range all {
		taken, e := l.finish(&all[i])
		done, err = done || taken, errors.Join(err, e)
	}
	return done, err
}

// finish continues a stream that the server has given to this process. It returns false if another
// instance has the stream.
func (l *Log) finish(t *takeover) (done bool, err error) {
	answer, err := t.answer.StringSlice()
	if err != nil {
		l.repeat(t.claim)
	}
	if err != nil || len(answer) != 3 {
		return false, err
	}
	h := t.claim.head
	o := replay.Orphan{Head: h, HandedOver: t.claim.handedOver, Stop: answer[2]}
	age, _ := strconv.ParseInt(answer[0], 10, 64)
	o.Age = time.Duration(min(max(0, age), maxAge.Milliseconds())) * time.Millisecond
	seams, err := replay.ParseSeams(answer[1])
	if err != nil {
		l.give(h, err)
		return true, nil
	}
	o.Head.Request, o.Deltas, err = l.load(t)
	switch {
	case errors.Is(err, errUnreadable):
		l.give(h, err)
		return true, nil
	case err != nil: // this process owns the stream, so no other instance tries again
		l.repeat(t.claim)
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

// errUnreadable is the error of load for a stream that no instance can load.
var errUnreadable = errors.New("replay: the server does not have all of the stream")

// load returns the request of a stream and its events. It reads the pages of a long log that were not
// read with the claim.
func (l *Log) load(t *takeover) (request string, deltas []replay.Event, err error) {
	request, err = t.request.Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", nil, fmt.Errorf("%w: its request is missing", errUnreadable)
	case err != nil:
		return "", nil, err
	}
	bytes, after := 0, uint64(0)
	for page := t.log; ; {
		entries, err := page.Result()
		if err != nil {
			return "", nil, err
		}
		events, err := parseEntries(entries, after)
		if err != nil {
			return "", nil, fmt.Errorf("%w: %w", errUnreadable, err)
		}
		for _, e := range events {
			bytes, after = bytes+len(e.Data)+len(e.Note), e.Seq
		}
		if bytes > l.config.Limits.Bytes {
			return "", nil, fmt.Errorf("%w: it has more than %d bytes", errUnreadable, l.config.Limits.Bytes)
		}
		deltas = append(deltas, events...)
		if len(entries) < maxBatch {
			return request, deltas, nil
		}
		page = l.claims.XRangeN(l.closing, logKey(t.claim.head.ID), "("+entries[len(entries)-1].ID, "+", maxBatch)
	}
}

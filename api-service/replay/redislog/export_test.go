package redislog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/replay"
)

// Timeouts are those of a Config. 0 means the default of Begin, and for the others a minute.
type Timeouts struct{ Server, Begin, Restore, Ahead time.Duration }

// With returns a Config with timeouts.
func (c Config) With(t Timeouts) Config {
	const long = time.Minute
	c.timeouts = timeouts{cmp.Or(t.Server, long), cmp.Or(t.Begin, defaultTimeouts.begin), cmp.Or(t.Restore, long), cmp.Or(t.Ahead, long)}
	return c
}

// Transition runs one script on the state of a stream, and returns the result in words.
func (l *Log) Transition(ctx context.Context, event string, h replay.Head) string {
	closing := []replay.Event{{Seq: 1, Kind: replay.Delta, Data: "one"}, {Seq: 2, Kind: replay.Ending, Data: "{}"}}
	switch event {
	case "begin":
		id, state, err := l.makeHead(ctx, h)
		if err != nil {
			return err.Error()
		}
		switch {
		case state == stateTaken:
			return "moved"
		case id == "":
			return "taken"
		}
		return id + " " + state
	case "write nothing":
		return result(l.write(h, nil, false))
	case "write":
		return result(l.write(h, closing[:1], false))
	case "write the end":
		return result(l.write(h, closing, true))
	case "lose":
		return l.asDead(ctx, h, func(owner string) string {
			if _, err := l.lose(h, owner); err != nil {
				return err.Error()
			}
			return ""
		})
	case "take":
		return l.asDead(ctx, h, func(owner string) string {
			answer, err := takeScript.Run(ctx, l.db, append(keysOf(h, owner), streamsKey(l.run), leasesKey), h.ID, h.Epoch, owner, l.run, liveTTL.Milliseconds(), "other").StringSlice()
			if err != nil {
				return err.Error()
			}
			if len(answer) == 0 {
				return "refused"
			}
			return "seams " + answer[1]
		})
	case "take living":
		l.db.ZAdd(ctx, leasesKey, redis.Z{Score: 1e15, Member: l.owner(ctx, h)})
		answer, err := takeScript.Run(ctx, l.db, append(keysOf(h, l.owner(ctx, h)), streamsKey(l.run), leasesKey), h.ID, h.Epoch, l.owner(ctx, h), l.run, liveTTL.Milliseconds(), "other").StringSlice()
		return fmt.Sprint(answer, err)
	case "forget":
		l.forget(ctx, h)
	case "refuse":
		if err := refuseScript.Run(ctx, l.db, keysOf(h, l.run), h.ID, h.Epoch, l.run, replay.RefusedTTL.Milliseconds(), wakeName(h.ID), 9, string(replay.Failure), "{}").Err(); err != nil {
			return err.Error()
		}
	case "erase":
		n, err := eraseScript.Run(ctx, l.db, keysOf(h, l.run), h.ID, h.Epoch, wakeName(h.ID), l.config.Limits.KeepsFor(h).Milliseconds()).Int()
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint("erased ", n)
	default:
		panic(event)
	}
	return ""
}

// RepeatTakeovers repeats the takeovers that this process could not complete, and returns the
// number of takeovers left.
func (l *Log) RepeatTakeovers() (left int, err error) {
	err = l.repeatTakeovers()
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.unsure), err
}

// owner returns the run that has a stream on the server.
func (l *Log) owner(ctx context.Context, h replay.Head) string {
	return l.db.HGet(ctx, headKey(h.ID), "run").Val()
}

// asDead calls f as if the owner of a stream had no lease.
func (l *Log) asDead(ctx context.Context, h replay.Head, f func(owner string) string) (result string) {
	owner := l.owner(ctx, h)
	for {
		l.db.ZAdd(ctx, leasesKey, redis.Z{Score: 0, Member: owner})
		if result = f(owner); strings.HasPrefix(result, "seams") || l.db.ZScore(ctx, leasesKey, owner).Val() == 0 {
			return result // repeat: the owner has extended its lease in the meantime
		}
	}
}

func result(last uint64, err error) string {
	switch {
	case errors.Is(err, errLost):
		return "lost"
	case errors.Is(err, errForgotten):
		return "forgotten"
	case errors.Is(err, errFenced):
		return "fenced"
	case err != nil:
		return err.Error()
	}
	return fmt.Sprint("last ", last)
}

// Abandon ends the writes of all streams, for which Close otherwise waits.
func (l *Log) Abandon() { l.close() }

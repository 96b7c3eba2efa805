package redislog

import (
	"context"
	"errors"
	"fmt"

	"github.com/whence-dev/whence/api-service/replay"
)

// Transition runs one script on the state of a stream, and returns its result in words.
func (l *Log) Transition(ctx context.Context, event string, h replay.Head) string {
	closing := []replay.Event{{Seq: 1, Kind: replay.Delta, Data: "one"}, {Seq: 2, Kind: replay.Ending, Data: "{}"}}
	switch event {
	case "begin":
		id, state, err := l.makeHead(ctx, h)
		if err != nil {
			return err.Error()
		}
		if id == "" {
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
		l.lose(h)
	case "forget":
		l.forget(ctx, h)
	default:
		panic(event)
	}
	return ""
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

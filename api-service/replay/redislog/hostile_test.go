package redislog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/replay/redislog"
	"github.com/whence-dev/whence/internal/redistest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// answers has what another server, or a broken one, may answer to any command. The checks of
// package redisclient let most of it pass: it is wrong only for the call.
var answers = map[string]string{
	"nothing":                "_\r\n",
	"an integer":             ":7\r\n",
	"a negative integer":     ":-9223372036854775808\r\n",
	"a string":               "+OK\r\n",
	"an error":               "-ERR unknown command, with 'args' beginning with: 10.1.2.3\r\n",
	"no parts":               "*0\r\n",
	"no pairs":               "%0\r\n",
	"one part":               "*1\r\n$1\r\na\r\n",
	"a number far ahead":     "*2\r\n:999999999999\r\n$0\r\n\r\n",
	"a number in the past":   "*2\r\n:0\r\n$0\r\n\r\n",
	"a negative number":      "*2\r\n:-5\r\n$0\r\n\r\n",
	"an id that is none":     "*2\r\n" + redistest.Bulk("a\r\nset-cookie: b") + redistest.Bulk("live"),
	"the id of another":      "*2\r\n" + redistest.Bulk("other") + redistest.Bulk("live"),
	"three parts":            "*3\r\n$1\r\n9\r\n$3\r\n9,9\r\n$0\r\n\r\n",
	"a head of another kind": "%2\r\n" + redistest.Bulk("epoch") + redistest.Bulk("e") + redistest.Bulk("state") + redistest.Bulk("live"),
	"a head with seams": "%3\r\n" + redistest.Bulk("began") + redistest.Bulk("2026-01-01T00:00:00Z") + redistest.Bulk("epoch") + redistest.Bulk("e") +
		redistest.Bulk("seams") + redistest.Bulk("1,x"),
	"a head":          "%2\r\n" + redistest.Bulk("began") + redistest.Bulk("2026-01-01T00:00:00Z") + redistest.Bulk("epoch") + redistest.Bulk("e"),
	"many strings":    fmt.Sprintf("*%d\r\n", 1000) + strings.Repeat("$1\r\n1\r\n", 1000),
	"a refused reply": "*999999999\r\n",
}

// TestNoAnswerOfRedisEndsTheProcess: the streams of the instance go on, and callers get errors in
// words of ours.
func TestNoAnswerOfRedisEndsTheProcess(t *testing.T) {
	t.Parallel()
	for name, answer := range answers {
		for _, known := range []bool{false, true} { // whether streams begin and are found
			t.Run(fmt.Sprintf("%s, known %v", name, known), func(t *testing.T) {
				t.Parallel()
				addr := redistest.Fake(t, func(command []string) string {
					begins := slices.Index(command, "began") > 0
					switch {
					case command[0] == "hello":
						return redistest.Greeting
					case known && command[0] == "hgetall":
						return answers["a head"]
					case known && begins:
						return "*2\r\n" + redistest.Bulk(command[10]) + redistest.Bulk("beginning")
					default:
						return answer
					}
				})
				surviveAnswers(t, addr)
			})
		}
	}
}

// surviveAnswers makes every call of a log whose server answers nonsense.
func surviveAnswers(t *testing.T, addr string) {
	t.Helper()
	l := openWith(t, redislog.Config{URL: "redis://" + addr + "/0", Log: slog.New(slog.DiscardHandler)}.With(redislog.Timeouts{Server: 100 * time.Millisecond}))
	check := func(call string, err error) {
		t.Helper()
		var told *streamerr.Error
		switch {
		case err == nil, errors.Is(err, replay.ErrUnknown), errors.Is(err, replay.ErrTaken), errors.Is(err, replay.ErrAhead), errors.Is(err, replay.ErrOpen):
		case errors.As(err, &told) && told.Message != "" && !strings.Contains(told.Text(), "parsing") && !strings.Contains(told.Text(), "10.1.2.3"):
		default:
			t.Errorf("%s: a caller is told %v", call, err)
		}
	}
	h, err := l.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e", Memo: "m", Began: time.Now()})
	check("begin", err)
	_, keyed := l.Begin(t.Context(), replay.Head{ID: "k", Epoch: "e", Key: "key", Began: time.Now()})
	check("begin with a key", keyed)
	readRemote(t, l, check)
	_, _ = l.Seen(t.Context(), "other")
	l.Stop(t.Context(), "other", "c", false, func(replay.Head) bool { return true })
	_, err = l.Erase(t.Context(), "other", "e")
	check("erase", err)
	l.Refuse(t.Context(), "k", "e", replay.Event{Kind: replay.Failure, Data: "{}"})
	if h.ID == "s" { // the stream is here
		if err := l.Append("s", "e", replay.Event{Kind: replay.Delta, Data: "a"}, closing); err != nil {
			t.Error(err)
		}
		if r, err := l.Open(t.Context(), "s"); err == nil {
			defer r.Close()
			_, err = r.Read(t.Context(), 0)
			check("read", err)
		}
	}
	closed, cancel := context.WithCancel(t.Context())
	cancel()
	l.HandOver(closed, "s", "e")
	l.Abandon() // what this server has not accepted, it will not accept
	if err := l.Close(); err != nil {
		t.Error("close: ", err)
	}
}

// readRemote reads a stream of another instance.
func readRemote(t *testing.T, l *redislog.Log, check func(call string, err error)) {
	t.Helper()
	r, err := l.Open(t.Context(), "other")
	check("open", err)
	if err != nil {
		return
	}
	defer r.Close()
	p, err := r.Read(t.Context(), 0)
	check("read of another", err)
	check("missed", p.Missed)
	_, err = r.Closing(t.Context())
	check("closing", err)
}

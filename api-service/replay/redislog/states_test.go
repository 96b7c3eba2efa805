package redislog_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/replay/redislog"
	"github.com/whence-dev/whence/internal/polltest"
)

// state returns the state of a stream on the server, or "" if the stream is absent.
func state(t testing.TB, db *redis.Client, id string) string {
	t.Helper()
	known, err := db.HGet(t.Context(), "whence:4:head:"+id, "state").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return known
}

// transitions lists, for each state of a stream, the result of each script:
//
//	state, with the instance that has ended the stream; script, and its caller; result; next state; number of events
//
// "owner" is the instance that runs the stream. "same key" is another stream with the stream's key,
// "same id" a later stream with its id.
const transitions = `
absent         | begin owner           | s beginning | beginning | 0
absent         | write nothing owner   | lost        | absent    | 0
absent         | write owner           | lost        | absent    | 0
absent         | write the end owner   | lost        | absent    | 0
absent         | lose other            |             | absent    | 0
absent         | forget owner          |             | forgotten | 0
absent         | erase other           | erased 1    | absent    | 0
beginning      | erase other           | erased 0    | beginning | 0
live           | erase other           | erased 0    | live      | 1
ended by owner | erase other           | erased 1    | erased    | 0
ended by owner | erase same id         | erased 1    | ended     | 2
ended by other | erase owner           | erased 1    | erased    | 0
forgotten      | erase other           | erased 1    | forgotten | 0
absent         | refuse owner          |             | absent    | 0
beginning      | refuse owner          |             | refused   | 1
beginning      | refuse same id        |             | beginning | 0
live           | refuse owner          |             | refused   | 2
live           | refuse same id        |             | live      | 1
taken          | refuse owner          |             | live      | 1
ended by owner | refuse owner          |             | refused   | 2
ended by owner | refuse same id        |             | ended     | 2
ended by other | refuse owner          |             | refused   | 2
forgotten      | refuse owner          |             | forgotten | 0
beginning      | begin owner           | s beginning | beginning | 0
beginning      | begin same key        | s beginning | beginning | 0
beginning      | begin same id         | taken       | beginning | 0
beginning      | write nothing owner   | last 0      | live      | 0
beginning      | write owner           | last 1      | live      | 1
beginning      | write same id         | lost        | beginning | 0
beginning      | write the end owner   | last 2      | ended     | 2
beginning      | lose other            |             | ended     | 1
beginning      | lose same id          |             | beginning | 0
beginning      | take other            | refused     | beginning | 0
beginning      | forget owner          |             | forgotten | 0
beginning      | forget same id        |             | beginning | 0
live           | begin owner           | s live      | live      | 1
live           | begin same key        | s live      | live      | 1
live           | begin same id         | taken       | live      | 1
live           | write owner           | last 1      | live      | 1
live           | write same id         | lost        | live      | 1
live           | write the end owner   | last 2      | ended     | 2
live           | lose other            |             | ended     | 2
live           | lose same id          |             | live      | 1
live           | take other            | seams 1     | live      | 1
live           | take same id          | refused     | live      | 1
live           | take living other     | [] <nil>    | live      | 1
live           | forget owner          |             | forgotten | 0
live           | forget same id        |             | live      | 1
taken          | begin owner           | moved       | live      | 1
taken          | begin same key        | s live      | live      | 1
taken          | write owner           | fenced      | live      | 1
taken          | write the end owner   | fenced      | live      | 1
taken          | write the end other   | last 2      | ended     | 2
taken          | take owner            | seams 1,1   | live      | 1
taken          | lose owner            |             | ended     | 2
taken          | forget owner          |             | live      | 1
taken          | forget other          |             | forgotten | 0
ended by owner | take other            | refused     | ended     | 2
ended by owner | begin owner           | s ended     | ended     | 2
ended by owner | begin same key        | s ended     | ended     | 2
ended by owner | begin same id         | taken       | ended     | 2
ended by owner | write the end owner   | last 2      | ended     | 2
ended by owner | write same id         | lost        | ended     | 2
ended by owner | lose other            |             | ended     | 2
ended by owner | forget owner          |             | forgotten | 0
ended by owner | forget same id        |             | ended     | 2
ended by other | begin same key        | s ended     | ended     | 2
ended by other | write owner           | fenced      | ended     | 2
ended by other | write the end owner   | fenced      | ended     | 2
ended by other | lose other            |             | ended     | 2
ended by other | forget owner          |             | forgotten | 0
forgotten      | begin owner           | taken       | forgotten | 0
forgotten      | begin same id         | taken       | forgotten | 0
forgotten      | write owner           | forgotten   | forgotten | 0
forgotten      | write the end owner   | forgotten   | forgotten | 0
forgotten      | write same id         | lost        | forgotten | 0
forgotten      | lose other            |             | forgotten | 0
forgotten      | forget owner          |             | forgotten | 0
forgotten      | forget same id        |             | forgotten | 0
`

// arrivals are the scripts that bring a stream into a state.
var arrivals = map[string][]string{
	"absent":         nil,
	"beginning":      {"begin owner"},
	"live":           {"begin owner", "write owner"},
	"ended by owner": {"begin owner", "write owner", "write the end owner"},
	"ended by other": {"begin owner", "write owner", "lose other"},
	"taken":          {"begin owner", "write owner", "take other"},
	"forgotten":      {"begin owner", "write owner", "forget owner"},
}

// lifetimes bound the time for which the server keeps a head in each state.
var lifetimes = map[string][2]time.Duration{
	"beginning": {time.Second, 5 * time.Second},
	"live":      {30 * time.Minute, time.Hour},
	"ended":     {time.Minute, 2 * time.Minute},
	"forgotten": {time.Second, 6 * time.Second},
	"refused":   {time.Second, 10 * time.Second}, // ended, without its key
	"erased":    {time.Minute, 2 * time.Minute},  // forgotten, for as long as the owner may have a copy
}

func TestEachScriptInEachState(t *testing.T) {
	t.Parallel()
	s := serve(t)
	limits := replay.Limits{TTL: 30 * time.Second, MemoTTL: 2 * time.Minute}
	owner, other := s.open(t, limits), s.open(t, limits)
	defer closeLog(t, owner)
	defer closeLog(t, other)
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	run := func(script string) string {
		h, by := replay.Head{ID: "s", Epoch: "e", Key: "k", Form: "f", Request: "prompt", Memo: "m"}, owner
		name, rest := cutAny(script, " owner", " other", " same key", " same id")
		switch rest {
		case " other":
			by = other
		case " same key":
			h, by = replay.Head{ID: "t", Epoch: "f", Key: "k"}, other
		case " same id":
			h, by = replay.Head{ID: "s", Epoch: "f"}, other
		}
		return by.Transition(t.Context(), name, h)
	}
	for row := range strings.Lines(strings.TrimSpace(transitions)) {
		cells := strings.Split(row, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		from, script, result, to, events := cells[0], cells[1], cells[2], cells[3], cells[4]
		if err := db.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for _, arrival := range arrivals[from] {
			run(arrival)
		}
		if got := strings.TrimSpace(run(script)); got != result {
			t.Errorf("%s, %s: the result is %q, want %q", from, script, got, result)
		}
		now := state(t, db, "s")
		if left := db.Exists(t.Context(), "whence:4:request:s").Val(); left == 1 != (now == "beginning" || now == "live") {
			t.Errorf("%s, %s: the server has %d requests of a stream that is %s", from, script, left, now)
		}
		if now == "" {
			now = "absent"
		}
		switch to {
		case "erased":
			now = strings.ReplaceAll(now, "forgotten", to)
		case "refused":
			now = strings.ReplaceAll(now, "ended", to)
		}
		if now != to {
			t.Errorf("%s, %s: the stream is %s, want %s", from, script, now, to)
			continue
		}
		if n := db.XLen(t.Context(), "whence:4:log:s").Val(); fmt.Sprint(n) != events {
			t.Errorf("%s, %s: the server has %d events, want %s", from, script, n, events)
		}
		left, keyLeft := db.PTTL(t.Context(), "whence:4:head:s").Val(), db.PTTL(t.Context(), "whence:4:key:k").Val()
		if bounds := lifetimes[to]; left > bounds[1] || left < bounds[0] && to != "absent" {
			t.Errorf("%s, %s: the server keeps the head for %v, want %v", from, script, left, bounds)
		}
		if keyed := to != "absent" && to != "forgotten" && to != "erased" && to != "refused"; keyed && (keyLeft-left).Abs() > time.Second || !keyed && keyLeft > 0 {
			t.Errorf("%s, %s: the server keeps the key for %v and the head for %v", from, script, keyLeft, left)
		}
	}
}

// cutAny cuts the first of the suffixes that text has, and returns the rest and that suffix.
func cutAny(text string, suffixes ...string) (before, suffix string) {
	for _, suffix := range suffixes {
		if before, ok := strings.CutSuffix(text, suffix); ok {
			return before, suffix
		}
	}
	return text, ""
}

// TestKeyOfALostStreamIsFreeWhenTheStreamExpires: another instance has ended the stream of a dead
// instance. The key of the stream expires with the stream.
func TestKeyOfALostStreamIsFreeWhenTheStreamExpires(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	dead, b := open(t, way.addr, replay.Limits{}), s.open(t, replay.Limits{TTL: time.Second})
	defer closeLog(t, b)
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	if _, err := dead.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	r := read(t, b, "s")
	if _, err := r.Read(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the stream is live", func() bool { return state(t, db, "s") == "live" })
	way.cut()
	polltest.Eventually(t, "the stream has ended", func() bool { return state(t, db, "s") != "live" })
	polltest.Eventually(t, "the stream has expired", func() bool { return state(t, db, "s") == "" })
	if h, err := b.Begin(t.Context(), replay.Head{ID: "next", Epoch: "f", Key: "k"}); err != nil || h.ID != "next" {
		t.Errorf("a retry with the key of an expired stream: %v, %v", h, err)
	}
	if err := b.Append("next", "f", closing); err != nil {
		t.Error(err)
	}
	dead.Abandon()
	closeLog(t, dead)
}

// TestReaderOfAStreamThatNoInstanceRestoresGivesUp: both the server and the owner have lost the
// stream.
func TestReaderOfAStreamThatNoInstanceRestoresGivesUp(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	dead, b := open(t, way.addr, replay.Limits{}), openTimed(t, s.Addr, redislog.Timeouts{Restore: 100 * time.Millisecond})
	defer closeLog(t, b)
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	if _, err := dead.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e"}); err != nil {
		t.Fatal(err)
	}
	r := read(t, b, "s")
	way.cut()
	if err := db.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the reader learns that the stream is gone", func() bool {
		_, err := r.Read(t.Context(), 0)
		if err != nil && !errors.Is(err, replay.ErrUnknown) {
			t.Fatal(err)
		}
		return err != nil
	})
	dead.Abandon()
	closeLog(t, dead)
}

// TestSlowServerGetsEachEventOnce: the server answers writes too late. The instance repeats them,
// and the server also executes the late ones. Readers of this instance do not wait for the server.
func TestSlowServerGetsEachEventOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	slow, b := openTimed(t, way.addr, redislog.Timeouts{Server: time.Second}), openLeased(t, s.Addr, replay.Limits{}, slog.DiscardHandler, patient)
	defer closeLog(t, slow)
	defer closeLog(t, b)
	if _, err := slow.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e"}); err != nil {
		t.Fatal(err)
	}
	here, there := read(t, slow, "s"), read(t, b, "s")
	text := ""
	for i := range 2 {
		if err := slow.Append("s", "e", delta(fmt.Sprint(i, " "))); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprint(i, " ")
		polltest.Eventually(t, "the server has the event", func() bool { got, _, _ := readText(t, there, 0); return got == text })
		way.hold()
		if err := slow.Append("s", "e", delta("late "), delta("later ")); err != nil {
			t.Error(err)
		}
		text += "late later "
		polltest.Eventually(t, "a reader here does not wait for the server", func() bool { got, _, _ := readText(t, here, 0); return got == text })
		way.pass()
	}
	if err := slow.Append("s", "e", closing); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the stream ends there", func() bool { _, _, ended := readText(t, there, 0); return ended })
	if got, last, _ := readText(t, there, 0); got != text || last.Seq != 7 {
		t.Errorf("a reader there has %q up to %d, want %q up to 7", got, last.Seq, text)
	}
}

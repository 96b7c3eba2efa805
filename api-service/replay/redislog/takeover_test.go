package redislog_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/replay/redislog"
	"github.com/whence-dev/whence/internal/polltest"
)

// An heir is an instance that takes streams over.
type heir struct {
	*redislog.Log
	name    string
	orphans chan replay.Orphan
	fenced  chan replay.Head
	stopped chan string
	full    atomic.Bool // the instance has no room for streams of others
	busy    sync.Mutex  // held while the instance's TakeOver must not return
}

// inherit opens an instance that takes streams over.
func inherit(t *testing.T, addr, name string) *heir {
	t.Helper()
	return inheritLeased(t, addr, name, 400*time.Millisecond)
}

// inheritLeased is inherit with a lease.
func inheritLeased(t *testing.T, addr, name string, lease time.Duration) *heir {
	t.Helper()
	h := &heir{name: name, orphans: make(chan replay.Orphan, 100), fenced: make(chan replay.Head, 100), stopped: make(chan string, 100)}
	l, err := redislog.New(redislog.Config{
		URL: "redis://" + addr + "/0", Name: name, Log: slog.New(slog.DiscardHandler), Lease: lease,
		Lost: func(h replay.Head) replay.Event { return replay.Event{Kind: replay.Failure, Data: "lost " + h.Edge} },
		TakeOver: func(o replay.Orphan) {
			h.orphans <- o
			h.busy.Lock()
			defer h.busy.Unlock()
		},
		Room:    func() bool { return !h.full.Load() },
		Fenced:  func(head replay.Head) { h.fenced <- head },
		Stopped: func(_ replay.Head, cause string) { h.stopped <- cause },
	}.With(redislog.Timeouts{}))
	if err != nil {
		t.Fatal(err)
	}
	h.Log = l
	return h
}

// begin begins a stream that can be taken over.
func (h *heir) begin(t *testing.T, id string) {
	t.Helper()
	if _, err := h.Begin(t.Context(), replay.Head{ID: id, Epoch: "e", Owner: "o", Edge: h.name, Form: "form", Request: "prompt of " + id, Began: time.Now()}); err != nil {
		t.Fatal(err)
	}
}

// say appends a delta with its note.
func (h *heir) say(t *testing.T, id, text string) {
	t.Helper()
	if err := h.Append(id, "e", replay.Event{Kind: replay.Delta, Data: text, Note: "note of " + text}); err != nil {
		t.Fatal(err)
	}
}

// isFenced writes to a stream that another instance has taken over or ended, and waits until the
// instance is fenced.
func (h *heir) isFenced(t *testing.T, id string) {
	t.Helper()
	_ = h.Append(id, "e", delta("too late")) // fails if the instance is fenced already
	polltest.Receive(t, "the earlier instance is fenced", h.fenced)
}

// takes returns the next stream that an instance takes over.
func (h *heir) takes(t *testing.T) replay.Orphan {
	t.Helper()
	return polltest.Receive(t, "a stream is taken over", h.orphans)
}

func TestStreamOfADeadInstanceIsTakenOver(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	a, b := inherit(t, way.addr, "a"), inherit(t, s.Addr, "b")
	defer closeLog(t, b)
	a.begin(t, "s")
	a.say(t, "s", "one ")
	a.say(t, "s", "two ")
	own, there := read(t, a, "s"), read(t, b, "s")
	polltest.Eventually(t, "the server has the events", func() bool { text, _, _ := readText(t, there, 0); return text == "one two " })
	way.cut()
	a.say(t, "s", "lost ") // a reader there sees the delta, but the server never gets it
	polltest.Eventually(t, "a reader there sees an event that the server does not have", func() bool { text, _, _ := readText(t, own, 0); return text == "one two lost " })
	o := b.takes(t)
	if o.Head.Edge != "a" || o.Head.Form != "form" || o.Head.Request != "prompt of s" || o.Head.Owner != "o" || o.HandedOver || o.Stop != "" || o.Age <= 0 {
		t.Errorf("%+v", o)
	}
	if len(o.Deltas) != 2 || o.Deltas[1] != (replay.Event{Seq: 2, Kind: replay.Delta, Data: "two ", Note: "note of two "}) {
		t.Errorf("%+v", o.Deltas)
	}
	b.say(t, "s", "three ")
	polltest.Eventually(t, "readers follow", func() bool {
		text, last, _ := readText(t, there, 2)
		return text == "three " && last.Seq == 1_000_000_003
	})
	way.mend(t)
	a.isFenced(t, "s")
	if err := a.Append("s", "e", delta("more")); !errors.Is(err, replay.ErrUnknown) {
		t.Error("the earlier instance appends:", err)
	}
	if _, err := own.Read(t.Context(), 3); !errors.Is(err, replay.ErrAhead) {
		t.Error("a reader that has seen an event that the server never got:", err)
	}
	if err := b.Append("s", "e", closing); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]replay.Reader{"there": there, "a new one": read(t, a, "s"), "of the earlier instance": own} {
		polltest.Eventually(t, "the reader gets the ending: "+name, func() bool { _, _, ended := readText(t, r, 0); return ended })
		if text, last, _ := readText(t, r, 1); text != "two three " || last.Kind != replay.Ending || last.Seq != 1_000_000_004 {
			t.Errorf("%s: %q, %+v", name, text, last)
		}
	}
	closeLog(t, a)
}

// TestEveryReaderReadsAClosingEventThatBeginsAGeneration: the number before the number of the
// closing event names no event.
func TestEveryReaderReadsAClosingEventThatBeginsAGeneration(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	a, b := inherit(t, way.addr, "a"), inherit(t, s.Addr, "b")
	defer closeLog(t, b)
	a.begin(t, "s")
	a.say(t, "s", "one ")
	own, there := read(t, a, "s"), read(t, b, "s")
	polltest.Eventually(t, "the server has the stream", func() bool { text, _, _ := readText(t, there, 0); return text == "one " })
	way.cut()
	b.takes(t)
	if err := b.Append("s", "e", replay.Event{Kind: replay.Failure, Data: "{}"}); err != nil {
		t.Fatal(err)
	}
	way.mend(t)
	a.isFenced(t, "s")
	heir := read(t, b, "s")
	polltest.Eventually(t, "the server has the closing event", func() bool { _, _, ended := readText(t, there, 1); return ended })
	for name, r := range map[string]replay.Reader{"of the earlier instance": own, "before the takeover": there, "of the heir": heir, "a new one": read(t, a, "s")} {
		if e, err := r.Closing(t.Context()); err != nil || e != (replay.Event{Seq: 1_000_000_002, Kind: replay.Failure, Data: "{}"}) {
			t.Errorf("reader %s: %+v, %v", name, e, err)
		}
	}
	closeLog(t, a)
}

func TestTwoInstancesTakeEachStreamOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	a, b, c := inherit(t, way.addr, "a"), inherit(t, s.Addr, "b"), inherit(t, s.Addr, "c")
	defer closeLog(t, b)
	defer closeLog(t, c)
	const streams = 90 // more than the batches of one instance at a time
	for i := range streams {
		a.begin(t, fmt.Sprint("s", i))
		a.say(t, fmt.Sprint("s", i), "one ")
	}
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	polltest.Eventually(t, "the server has all", func() bool {
		return state(t, db, "s0") == "live" && db.XLen(t.Context(), fmt.Sprint("whence:4:log:s", streams-1)).Val() == 1
	})
	way.cut()
	taken := map[string]string{}
	for range streams {
		var o replay.Orphan
		by := b
		select {
		case o = <-b.orphans:
		case o = <-c.orphans:
			by = c
		case <-time.After(polltest.Patience):
			t.Fatalf("%d of %d streams are taken over", len(taken), streams)
		}
		if before := taken[o.Head.ID]; before != "" {
			t.Errorf("%s is taken over by %s and by %s", o.Head.ID, before, by.name)
		}
		taken[o.Head.ID] = by.name
		if err := by.Append(o.Head.ID, "e", delta("two"), closing); err != nil {
			t.Error(err)
		}
	}
	for id := range taken {
		r := read(t, b, id)
		polltest.Eventually(t, "the stream ends", func() bool { text, _, ended := readText(t, r, 0); return ended && text == "one two" })
	}
	way.mend(t)
	for id := range taken {
		a.isFenced(t, id)
	}
	closeLog(t, a)
}

// TestStreamIsTakenOverAgain: each instance that gets the stream dies.
func TestStreamIsTakenOverAgain(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	owner := inherit(t, way.addr, "0")
	owner.begin(t, "s")
	want := ""
	for n := range 4 {
		text := fmt.Sprint(n, " ")
		owner.say(t, "s", text)
		want += text
		next := newProxy(t, s.Addr)
		heir := inherit(t, next.addr, fmt.Sprint(n+1))
		r := read(t, heir, "s")
		polltest.Eventually(t, "the server has it", func() bool { got, _, _ := readText(t, r, 0); return got == want })
		way.cut()
		if n == 3 { // it has been taken over too often
			polltest.Eventually(t, "the stream ends", func() bool {
				got, last, ended := readText(t, r, 0)
				return ended && got == want && last.Data == "lost 3"
			})
		} else if o := heir.takes(t); o.Head.Edge != fmt.Sprint(n) || len(o.Deltas) != n+1 {
			t.Errorf("takeover %d: %+v", n, o)
		}
		way.mend(t)
		owner.isFenced(t, "s")
		way.cut()
		defer closeLog(t, owner)
		owner, way = heir, next
	}
	closeLog(t, owner)
}

func TestStreamIsHandedOver(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a := inherit(t, s.Addr, "a")
	defer closeLog(t, a)
	a.begin(t, "s")
	a.say(t, "s", "one ")
	a.Retire()
	if a.HandOver(t.Context(), "s", "e") {
		t.Fatal("the stream is handed over, and there is no other instance")
	}
	own := read(t, a, "s")
	b := inherit(t, s.Addr, "b")
	defer closeLog(t, b)
	a.say(t, "s", "two ")
	polltest.Eventually(t, "the stream is handed over", func() bool { return a.HandOver(t.Context(), "s", "e") })
	o := b.takes(t)
	if !o.HandedOver || o.Head.Edge != "a" || len(o.Deltas) != 2 {
		t.Errorf("%+v", o)
	}
	if err := b.Append("s", "e", delta("three"), closing); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "a reader of the first instance reads on", func() bool { text, _, ended := readText(t, own, 0); return ended && text == "one two three" })
	if a.HandOver(t.Context(), "s", "e") || a.HandOver(t.Context(), "other", "e") {
		t.Error("a stream that does not run here is handed over")
	}
}

// sluggish is a lease for tests with an instance without room, which ends a stream if it finds no
// other heir: none of these instances loses its lease, however slow the machine is.
const sluggish = 8 * time.Second

// TestAnHeirThatGivesAStreamBackHasNotRunIt: the next heir still learns how the instance that ran
// the stream left it.
func TestAnHeirThatGivesAStreamBackHasNotRunIt(t *testing.T) {
	for name, hands := range map[string]bool{"a dead instance": false, "an instance that drains": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			way := newProxy(t, s.Addr)
			lease := 2 * time.Second // the other instances notice after five
			if hands {
				lease = sluggish
			}
			a, b := inheritLeased(t, way.addr, "a", lease), inheritLeased(t, s.Addr, "b", lease)
			defer closeLog(t, b)
			a.begin(t, "s")
			a.say(t, "s", "one ")
			there := read(t, b, "s")
			polltest.Eventually(t, "the server has the stream", func() bool { text, _, _ := readText(t, there, 0); return text == "one " })
			if hands {
				a.Retire()
				polltest.Eventually(t, "the stream is handed over", func() bool { return a.HandOver(t.Context(), "s", "e") })
			} else {
				way.cut()
			}
			if o := b.takes(t); o.HandedOver != hands || o.Head.Edge != "a" {
				t.Errorf("%+v", o)
			}
			c := inheritLeased(t, s.Addr, "c", lease)
			defer closeLog(t, c)
			b.full.Store(true)
			polltest.Eventually(t, "the stream is given back", func() bool { return b.HandOver(t.Context(), "s", "e") })
			if o := c.takes(t); o.HandedOver != hands || o.Head.Edge != "a" {
				t.Errorf("the next heir gets %+v", o)
			}
			if err := c.Append("s", "e", delta("two"), closing); err != nil {
				t.Fatal(err)
			}
			if !hands {
				way.mend(t)
				a.isFenced(t, "s")
			}
			closeLog(t, a)
		})
	}
}

// TestAnInstanceWithoutRoomAsksTheServerForOtherHeirs: an instance gives a stream back to an heir
// that is newer than its last beat, and finds the stream among the streams without an owner.
func TestAnInstanceWithoutRoomAsksTheServerForOtherHeirs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a := openLeased(t, s.Addr, replay.Limits{}, slog.DiscardHandler, patient)
	b := inheritLeased(t, s.Addr, "b", sluggish)
	defer closeLog(t, a)
	defer closeLog(t, b)
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	if _, err := a.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e", Edge: "a", Form: "form", Request: "prompt"}); err != nil {
		t.Fatal(err)
	}
	b.busy.Lock()
	lookAgain := sync.OnceFunc(b.busy.Unlock)
	defer lookAgain()
	polltest.Eventually(t, "the stream is handed over", func() bool { return a.HandOver(t.Context(), "s", "e") })
	b.takes(t)
	if err := db.ZAdd(t.Context(), "whence:4:heirs", redis.Z{Score: 1e15, Member: "new"}).Err(); err != nil {
		t.Fatal(err)
	}
	b.full.Store(true)
	polltest.Eventually(t, "the stream is given back", func() bool { return b.HandOver(t.Context(), "s", "e") })
	before := calls(t, db, "srandmember")
	lookAgain()
	polltest.Eventually(t, "the instance has looked for more streams", func() bool { return calls(t, db, "srandmember") > before })
	c := inherit(t, s.Addr, "c")
	defer closeLog(t, c)
	if o := c.takes(t); !o.HandedOver || o.Head.Edge != "a" {
		t.Errorf("the next heir gets %+v", o)
	}
	if err := c.Append("s", "e", closing); err != nil {
		t.Fatal(err)
	}
}

// calls returns how often the server has executed a command.
func calls(t *testing.T, db *redis.Client, command string) int {
	t.Helper()
	stats, err := db.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(stats, "cmdstat_"+command+":calls=")
	digits, _, _ := strings.Cut(after, ",")
	n, _ := strconv.Atoi(digits)
	return n
}

func TestStopReachesTheInstanceThatRunsAStreamOrTakesItOver(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	a, b := inherit(t, way.addr, "a"), inherit(t, s.Addr, "b")
	defer closeLog(t, b)
	all := func(replay.Head) bool { return true }
	for _, id := range []string{"live", "gap"} {
		a.begin(t, id)
		a.say(t, id, "one")
		r := read(t, b, id)
		polltest.Eventually(t, "the server has the stream", func() bool { text, _, _ := readText(t, r, 0); return text == "one" })
	}
	if b.Stop(t.Context(), "live", "cause", false, func(replay.Head) bool { return false }) || b.Stop(t.Context(), "none", "cause", false, all) {
		t.Error("a stop is recorded that is not allowed, or of a stream that is not there")
	}
	if !b.Stop(t.Context(), "live", "cause", false, all) {
		t.Fatal("the stop is not recorded")
	}
	a.say(t, "live", "two")
	if cause := <-a.stopped; cause != "cause" {
		t.Error(cause)
	}
	if err := a.Append("live", "e", closing); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the stream has ended", func() bool { return !b.Stop(t.Context(), "live", "late", false, all) })
	way.cut()
	if !b.Stop(t.Context(), "gap", "in the gap", false, all) {
		t.Fatal("the stop is not recorded")
	}
	if o := b.takes(t); o.Head.ID != "gap" || o.Stop != "in the gap" {
		t.Errorf("%+v", o)
	}
	if err := b.Append("gap", "e", closing); err != nil {
		t.Fatal(err)
	}
	way.mend(t)
	a.isFenced(t, "gap")
	closeLog(t, a)
}

// TestOwnerLearnsOfAStopFromAnotherInstance: a chat-service passes the stop to the owner. If the owner is
// frozen, the log passes it to the next owner.
func TestOwnerLearnsOfAStopFromAnotherInstance(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	a, b := inherit(t, way.addr, "a"), inherit(t, s.Addr, "b")
	defer closeLog(t, b)
	a.begin(t, "s")
	a.say(t, "s", "one ")
	r := read(t, b, "s")
	polltest.Eventually(t, "the server has the stream", func() bool { text, _, _ := readText(t, r, 0); return text == "one " })
	if !b.Stop(t.Context(), "s", "cause", true, func(replay.Head) bool { return true }) {
		t.Fatal("the stop is not recorded")
	}
	a.say(t, "s", "two ")
	polltest.Eventually(t, "the server has the rest", func() bool { text, _, _ := readText(t, r, 0); return text == "one two " })
	if len(a.stopped) > 0 {
		t.Error("the log passes the stop to the owner:", <-a.stopped)
	}
	way.cut()
	if o := b.takes(t); o.Stop != "cause" {
		t.Errorf("%+v", o)
	}
	if err := b.Append("s", "e", closing); err != nil {
		t.Fatal(err)
	}
	way.mend(t)
	a.isFenced(t, "s")
	closeLog(t, a)
}

// TestInstancesWithoutRoomLeaveStreamsToOthers: one instance never takes streams over, and another
// has no room at first.
func TestInstancesWithoutRoomLeaveStreamsToOthers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	const lease = 2 * time.Second
	a, b, c := inheritLeased(t, way.addr, "a", lease), inheritLeased(t, s.Addr, "b", lease), inheritLeased(t, s.Addr, "c", lease)
	never := openLeased(t, s.Addr, replay.Limits{}, slog.DiscardHandler, lease)
	defer closeLog(t, never)
	defer closeLog(t, b)
	defer closeLog(t, c)
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	b.full.Store(true)
	a.begin(t, "s")
	a.say(t, "s", "one ")
	polltest.Eventually(t, "the server has the stream", func() bool { return db.XLen(t.Context(), "whence:4:log:s").Val() == 1 })
	way.cut()
	if o := c.takes(t); o.Head.ID != "s" {
		t.Errorf("%+v", o)
	}
	if len(b.orphans) > 0 {
		t.Error("an instance without room takes the stream over")
	}
	if err := c.Append("s", "e", closing); err != nil {
		t.Fatal(err)
	}
	way.mend(t)
	a.isFenced(t, "s")
	closeLog(t, a)
}

// TestStreamThatNoInstanceHasRoomForEnds: the readers of the stream must get an ending.
func TestStreamThatNoInstanceHasRoomForEnds(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	a, b := inherit(t, way.addr, "a"), inherit(t, s.Addr, "b")
	defer closeLog(t, b)
	b.full.Store(true)
	a.begin(t, "s")
	a.say(t, "s", "one ")
	r := read(t, b, "s")
	polltest.Eventually(t, "the server has the stream", func() bool { text, _, _ := readText(t, r, 0); return text == "one " })
	way.cut()
	polltest.Eventually(t, "the stream ends", func() bool { _, last, ended := readText(t, r, 1); return ended && last.Data == "lost a" })
	way.mend(t)
	a.isFenced(t, "s")
	closeLog(t, a)
}

// TestTakeoverIsRepeatedUntilTheStreamIsLoaded: the server answers with errors for a while.
func TestTakeoverIsRepeatedUntilTheStreamIsLoaded(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	a, b := inherit(t, way.addr, "a"), inherit(t, s.Addr, "b")
	defer closeLog(t, b)
	a.begin(t, "s")
	a.say(t, "s", "one ")
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	polltest.Eventually(t, "the server has the stream", func() bool { return db.XLen(t.Context(), "whence:4:log:s").Val() == 1 })
	const request = "whence:4:request:s"
	prompt := db.Get(t.Context(), request).Val()
	db.Del(t.Context(), request)
	db.HSet(t.Context(), request, "no", "text")
	way.cut()
	polltest.Eventually(t, "the stream has a new owner", func() bool { return db.HGet(t.Context(), "whence:4:head:s", "edge").Val() == "b" })
	db.Del(t.Context(), request)
	db.Set(t.Context(), request, prompt, time.Hour)
	if o := b.takes(t); o.Head.Edge != "a" || o.Head.Request != prompt || len(o.Deltas) != 1 {
		t.Errorf("%+v", o)
	}
	if seams := db.HGet(t.Context(), "whence:4:head:s", "seams").Val(); seams != "1" {
		t.Errorf("the takeover has begun the generations %q", seams)
	}
	if err := b.Append("s", "e", closing); err != nil {
		t.Fatal(err)
	}
	way.mend(t)
	a.isFenced(t, "s")
	closeLog(t, a)
}

// TestARetiredInstanceRepeatsNoTakeover: the instance drains, and continues no stream.
func TestARetiredInstanceRepeatsNoTakeover(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := newProxy(t, s.Addr)
	a, b := inherit(t, way.addr, "a"), inherit(t, s.Addr, "b")
	defer closeLog(t, b)
	a.begin(t, "s")
	a.say(t, "s", "one ")
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	polltest.Eventually(t, "the server has the stream", func() bool { return db.XLen(t.Context(), "whence:4:log:s").Val() == 1 })
	const request = "whence:4:request:s"
	prompt := db.Get(t.Context(), request).Val()
	db.Del(t.Context(), request)
	db.HSet(t.Context(), request, "no", "text")
	way.cut()
	polltest.Eventually(t, "the stream has a new owner", func() bool { return db.HGet(t.Context(), "whence:4:head:s", "edge").Val() == "b" })
	b.Retire()
	db.Del(t.Context(), request)
	db.Set(t.Context(), request, prompt, time.Hour)
	if left, err := b.RepeatTakeovers(); left != 1 || err != nil {
		t.Errorf("%d takeovers are left to others: %v", left, err)
	}
	select {
	case o := <-b.orphans:
		t.Errorf("the retired instance continues %+v", o)
	default:
	}
	way.mend(t)
	a.isFenced(t, "s")
	closeLog(t, a)
}

func TestStreamThatCannotBeTakenOverEnds(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(db *redis.Client, id string){
		"its request is not kept": func(db *redis.Client, id string) { db.HSet(t.Context(), "whence:4:head:"+id, "form", "") },
		"its request is gone":     func(db *redis.Client, id string) { db.Del(t.Context(), "whence:4:request:"+id) },
		"an event is gone":        func(db *redis.Client, id string) { db.XDel(t.Context(), "whence:4:log:"+id, "1-0") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			db := redis.NewClient(&redis.Options{Addr: s.Addr})
			defer db.Close()
			way := newProxy(t, s.Addr)
			a, b := inherit(t, way.addr, "a"), inherit(t, s.Addr, "b")
			defer closeLog(t, b)
			id := strings.ReplaceAll(name, " ", "-")
			a.begin(t, id)
			a.say(t, id, "one ")
			a.say(t, id, "two ")
			r := read(t, b, id)
			polltest.Eventually(t, "the server has the stream", func() bool { text, _, _ := readText(t, r, 0); return text == "one two " })
			spoil(db, id)
			way.cut()
			polltest.Eventually(t, "the stream ends", func() bool { _, last, ended := readText(t, r, 2); return ended && last.Data == "lost a" })
			if len(b.orphans) > 0 {
				t.Error("the stream is taken over")
			}
			way.mend(t)
			a.isFenced(t, id)
			closeLog(t, a)
		})
	}
}

// TestInstancesKeepTheirStreamsWhenTheServerIsBack: the server was down for longer than a lease.
func TestInstancesKeepTheirStreamsWhenTheServerIsBack(t *testing.T) {
	t.Parallel()
	s := serve(t)
	wayA, wayB := newProxy(t, s.Addr), newProxy(t, s.Addr)
	a, b := inherit(t, wayA.addr, "a"), inherit(t, wayB.addr, "b")
	a.begin(t, "s")
	a.say(t, "s", "one ")
	db := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer db.Close()
	polltest.Eventually(t, "the server has the stream", func() bool { return db.XLen(t.Context(), "whence:4:log:s").Val() == 1 })
	wayA.cut()
	wayB.cut()
	polltest.Eventually(t, "both leases are over", func() bool {
		now := db.Time(t.Context()).Val().UnixMilli()
		return db.ZCount(t.Context(), "whence:4:leases", fmt.Sprint(now), "+inf").Val() == 0
	})
	wayB.mend(t)
	wayA.mend(t)
	a.say(t, "s", "two")
	if err := a.Append("s", "e", closing); err != nil {
		t.Fatal(err)
	}
	r := read(t, b, "s")
	polltest.Eventually(t, "the stream ends", func() bool { text, _, ended := readText(t, r, 0); return ended && text == "one two" })
	if len(b.orphans) > 0 || len(a.fenced) > 0 {
		t.Error("the stream was taken over")
	}
	closeLog(t, a)
	closeLog(t, b)
}

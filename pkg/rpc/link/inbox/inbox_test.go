package inbox_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/whence-dev/whence/pkg/rpc/link/inbox"
	"github.com/whence-dev/whence/pkg/stream"
)

// put puts messages on l, which must continue to read the connection.
func put(t *testing.T, q *inbox.Inbox, l *stream.Loop, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if still, err := q.Put(l, []byte(m)); err != nil || !still {
			t.Fatal(m, still, err)
		}
	}
}

func newInbox(limit, maxMessage int) *inbox.Inbox {
	q := new(inbox.Inbox)
	q.Init(limit, maxMessage)
	return q
}

func newLoop(t *testing.T) *stream.Loop {
	return stream.NewLoop(func() { t.Error("handed over") })
}

// attend passes the messages of q to take, and returns a channel that receives the end.
func attend(q *inbox.Inbox, take inbox.Take) <-chan error {
	ended := make(chan error, 1)
	q.Attend(take, func(err error) { ended <- err })
	return ended
}

// TestAttendPassesMessagesOn: on the goroutine that puts them, after earlier messages, until the
// end.
func TestAttendPassesMessagesOn(t *testing.T) {
	q, l := newInbox(1000, 100), newLoop(t)
	put(t, q, l, "a", "b")
	var got []string
	ended := attend(q, func(_ *stream.Loop, m []byte, _ error) bool { got = append(got, string(m)); return true })
	for i := range 10 {
		put(t, q, l, fmt.Sprint(i))
		if want := fmt.Sprint(i); got[len(got)-1] != want {
			t.Fatalf("take did not get %q on the goroutine that puts it", want)
		}
	}
	for left := 3; left > 0; left-- {
		if still, err := q.PutPart(l, left, []byte{'x'}); err != nil || !still {
			t.Fatal(err)
		}
	}
	q.End(io.EOF)
	if err := <-ended; !errors.Is(err, io.EOF) || strings.Join(got, "") != "ab0123456789xxx" {
		t.Error(got, err)
	}
}

// TestReaderThatHasEnoughLeavesTheRest: Next returns the messages that take did not get.
func TestReaderThatHasEnoughLeavesTheRest(t *testing.T) {
	q, l := newInbox(1000, 100), newLoop(t)
	ended := attend(q, func(_ *stream.Loop, m []byte, _ error) bool { return string(m) != "b" })
	put(t, q, l, "a", "b", "c")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	put(t, q, l, "d")
	q.End(io.EOF)
	for _, want := range []string{"c", "d"} {
		if m, err := q.Next(); string(m) != want || err != nil {
			t.Error(string(m), err)
		}
	}
	if _, err := q.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// TestReaderThatWaitsKeepsItsTurn: while a reader waits, another goroutine reads the connection.
// The messages of the stream wait in order, and the reader's goroutine reads them.
func TestReaderThatWaitsKeepsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newInbox(1000, 100)
		var got []string
		room := make(chan struct{})
		q.Attend(func(on *stream.Loop, m []byte, _ error) bool {
			if got = append(got, string(m)); string(m) == "a" {
				on.Wait()
				<-room
			}
			return true
		}, func(error) {})
		handed := false
		first := stream.NewLoop(func() { handed = true })
		left := make(chan bool)
		go func() {
			still, err := q.Put(first, []byte("a"))
			left <- !still && err == nil
		}()
		synctest.Wait()
		if !handed {
			t.Fatal("the connection was not handed over")
		}
		second := newLoop(t)
		put(t, q, second, "b", "c")
		if len(got) != 1 {
			t.Error("two goroutines read", got)
		}
		close(room)
		if !<-left {
			t.Error("the first goroutine still reads the connection")
		}
		put(t, q, second, "d")
		if !slices.Equal(got, []string{"a", "b", "c", "d"}) {
			t.Error(got)
		}
		q.Drop(io.ErrClosedPipe)
	})
}

// TestDropWithinTheReader: a Drop ends the reader's turn.
func TestDropWithinTheReader(t *testing.T) {
	q := newInbox(1000, 100)
	ended := attend(q, func(*stream.Loop, []byte, error) bool { q.Drop(io.ErrClosedPipe); return true })
	put(t, q, newLoop(t), "a", "b")
	if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

// TestReaderThatExits: a take that exits its goroutine gets no more messages, whether a Loop or
// Attend calls it.
func TestReaderThatExits(t *testing.T) {
	for name, early := range map[string]bool{"by a Loop": false, "by Attend": true} {
		t.Run(name, func(t *testing.T) {
			q := newInbox(1000, 100)
			ended := make(chan error, 1)
			message := func() { _, _ = q.Put(stream.NewLoop(func() {}), []byte("a")) }
			reading := func() {
				q.Attend(func(*stream.Loop, []byte, error) bool { runtime.Goexit(); return true }, func(err error) { ended <- err })
			}
			first, second := reading, message
			if early {
				first, second = message, reading
			}
			var wg sync.WaitGroup
			wg.Go(first)
			wg.Wait()
			wg.Go(second)
			wg.Wait()
			if early { // the caller of Attend notices the exit while it unwinds
				if len(ended) > 0 {
					t.Error("the end after an exit was reported twice")
				}
				return
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBounds: a message beyond the credit or the length limit ends the connection, and a message
// that was not sent is an error of its own.
func TestBounds(t *testing.T) {
	l := newLoop(t)
	q := newInbox(2*inbox.Cost(10), 10)
	put(t, q, l, "0123456789")
	if still, err := q.PutPart(l, 11, nil); err != nil || !still {
		t.Fatal(err)
	}
	if _, err := q.Put(l, make([]byte, 11)); !errors.Is(err, inbox.ErrProtocol) {
		t.Error(err)
	}
	if _, err := q.Put(l, make([]byte, 10)); !errors.Is(err, inbox.ErrOverrun) {
		t.Error(err)
	}
	if m, err := q.Next(); string(m) != "0123456789" || err != nil {
		t.Error(string(m), err)
	}
	if _, err := q.Next(); !errors.Is(err, inbox.TooLong(11)) {
		t.Error(err)
	}
}

// TestAttendNeedsNoGoroutine: the goroutines that bring messages pass them on, earlier messages
// included, and then the end.
func TestAttendNeedsNoGoroutine(t *testing.T) {
	q, l := newInbox(1000, 100), newLoop(t)
	put(t, q, l, "a")
	var got []string
	q.Attend(func(_ *stream.Loop, m []byte, _ error) bool { got = append(got, string(m)); return true }, func(err error) { got = append(got, err.Error()) })
	put(t, q, l, "b", "c")
	q.End(io.EOF)
	q.End(io.ErrUnexpectedEOF)
	q.Drop(io.ErrClosedPipe)
	if s := strings.Join(got, " "); s != "a b c EOF" {
		t.Error(s)
	}
}

// TestAttendEndsOnce: when take wants no more, when the inbox was dropped, and when the end comes
// within take.
func TestAttendEndsOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		take func(q *inbox.Inbox) bool
		then func(q *inbox.Inbox)
		want string
	}{
		{name: "enough", take: func(*inbox.Inbox) bool { return false }, want: "<nil>"},
		{name: "dropped", take: func(*inbox.Inbox) bool { return true }, then: func(q *inbox.Inbox) { q.Drop(io.ErrClosedPipe) }, want: io.ErrClosedPipe.Error()},
		{name: "ended within", take: func(q *inbox.Inbox) bool { q.End(io.EOF); return true }, want: "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, l := newInbox(1000, 100), newLoop(t)
			var ends []string
			q.Attend(func(*stream.Loop, []byte, error) bool { return c.take(q) }, func(err error) { ends = append(ends, fmt.Sprint(err)) })
			put(t, q, l, "a")
			if c.then != nil {
				c.then(q)
			}
			put(t, q, l, "b")
			q.Drop(io.ErrNoProgress)
			if !slices.Equal(ends, []string{c.want}) {
				t.Errorf("%q, want %q", ends, c.want)
			}
		})
	}
}

// TestEndOfABatch: the end follows the messages of the batch, which Hand passes on.
func TestEndOfABatch(t *testing.T) {
	q := newInbox(1000, 100)
	var got []string
	ended := attend(q, func(_ *stream.Loop, m []byte, _ error) bool { got = append(got, string(m)); return true })
	for at, m := range []string{"a", "b"} {
		if due, err := q.Add([]byte(m)); due != (at == 0) || err != nil {
			t.Fatal(due, err)
		}
	}
	q.End(io.EOF)
	if len(ended) > 0 {
		t.Fatal("the end overtook the messages")
	}
	if !q.Hand(newLoop(t)) {
		t.Error("the connection was handed over")
	}
	if err := <-ended; !errors.Is(err, io.EOF) || !slices.Equal(got, []string{"a", "b"}) {
		t.Error(err, got)
	}
	if !q.Hand(newLoop(t)) { // a goroutine that was late
		t.Error("the connection was handed over")
	}
}

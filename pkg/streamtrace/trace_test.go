package streamtrace_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/tally"
)

// begin begins the trace of a stream that begins now.
func begin(tracer *streamtrace.Tracer) (*streamtrace.Trace, *tally.Tally) {
	count := tally.New(time.Now())
	return tracer.Begin(count, streamtrace.Parent{}, ""), count
}

func recordOf(t *streamtrace.Trace) *streamv1.Record {
	r := &streamv1.Record{}
	t.Tell(r)
	return r
}

// indices returns the indices of the kept messages of a kind.
func indices(r *streamv1.Record, kind streamtrace.Kind) (kept []uint64) {
	for _, e := range r.GetEvents() {
		if streamtrace.Kind(e.GetKind()) == kind {
			kept = append(kept, e.GetIndex())
		}
	}
	return kept
}

func TestLongStreamKeepsItsFirstAndLastMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, count := begin(&streamtrace.Tracer{Messages: 3})
		tr.Header(streamtrace.RecvHeader, streamtrace.Up, "", "client")
		for i := range 10000 {
			time.Sleep(time.Millisecond)
			count.Received(1, nil)
			count.Wrote(i)
			count.Wrote(1)
			count.Sent(2, nil)
		}
		time.Sleep(time.Millisecond)
		tr.Note(streamtrace.SendTrailer, streamtrace.Up, "OK", streamerr.Completed, streamerr.NewPath("engine", "hop"))
		r := recordOf(tr)
		want := []uint64{0, 1, 2, 9997, 9998, 9999}
		if got := indices(r, streamtrace.Recv); !slices.Equal(got, want) {
			t.Errorf("received %v", got)
		}
		if got := indices(r, streamtrace.Send); !slices.Equal(got, want) {
			t.Errorf("sent %v", got)
		}
		if r.GetMessagesReceived() != 10000 || r.GetMessagesSent() != 10000 {
			t.Error(r.GetMessagesReceived(), r.GetMessagesSent())
		}
		events := r.GetEvents()
		if len(events) != 14 || events[0].GetKind() != streamv1.EventKind_EVENT_KIND_RECV_HEADER || events[13].GetKind() != streamv1.EventKind_EVENT_KIND_SEND_TRAILER {
			t.Fatal(events)
		}
		if last := events[12]; last.GetAt().AsDuration() != 10*time.Second || last.GetBytes() != 10000 || last.GetTokens() != 2 || last.GetSide() != streamv1.Side_SIDE_UP {
			t.Error(last)
		}
	})
}

func TestFewMessagesAreAllKept(t *testing.T) {
	for _, keep := range []int{0, 1, 4} {
		for n := range 10 {
			tr, count := begin(&streamtrace.Tracer{Messages: keep})
			for range n {
				count.Received(1, nil)
			}
			r := recordOf(tr)
			var want []uint64
			for i := range n {
				if i < keep || i >= n-keep {
					want = append(want, uint64(i))
				}
			}
			if got := indices(r, streamtrace.Recv); !slices.Equal(got, want) || r.GetMessagesReceived() != uint64(n) {
				t.Errorf("keeping %d at each end of %d messages: %v, and a count of %d", keep, n, got, r.GetMessagesReceived())
			}
		}
	}
}

func TestEventsOfStateAreBounded(t *testing.T) {
	tr, _ := begin(&streamtrace.Tracer{})
	for i := range 1000 {
		tr.Header(streamtrace.SendHeader, streamtrace.Down, fmt.Sprint(i))
	}
	events := recordOf(tr).GetEvents()
	if len(events) != 32 || events[0].GetCode() != "0" || events[15].GetCode() != "15" || events[16].GetCode() != "984" || events[31].GetCode() != "999" {
		t.Error(len(events), events)
	}
}

func TestStopsHaveTheFormInWhichTheyCame(t *testing.T) {
	path := streamerr.NewPath
	for _, c := range []struct {
		cause *streamerr.Error
		code  string // "" for none
	}{
		{&streamerr.Error{Reason: streamerr.ClientGone, Path: path("client")}, streamtrace.CodeCancel},
		{&streamerr.Error{Reason: streamerr.ClientGone, Path: path("client", "api-service")}, streamtrace.CodeStop},
		{&streamerr.Error{Reason: streamerr.UserStop, Path: path("client")}, streamtrace.CodeStop},
		{&streamerr.Error{Reason: streamerr.PeerReset, Path: path("client")}, streamtrace.CodeCancel},
		{&streamerr.Error{Reason: streamerr.PeerLost, Path: path("api-service")}, streamtrace.CodeLost},
		{&streamerr.Error{Reason: streamerr.PeerLost, Path: path("api-service", "chat-service")}, streamtrace.CodeStop},
		{&streamerr.Error{Reason: streamerr.OperatorStop, Path: path("operator")}, streamtrace.CodeStop},
		{streamerr.New(streamerr.Deadline, "this hop's own"), ""},
	} {
		tr, _ := begin(&streamtrace.Tracer{})
		tr.Stopping(time.Now(), c.cause)
		events := recordOf(tr).GetEvents()
		if c.code == "" {
			if len(events) != 0 {
				t.Errorf("%v: %v", c.cause, events)
			}
			continue
		}
		if len(events) != 1 || events[0].GetCode() != c.code || events[0].GetKind() != streamv1.EventKind_EVENT_KIND_RECV_RST ||
			streamerr.Reason(events[0].GetReason()) != c.cause.Reason {
			t.Errorf("%v: %v", c.cause, events)
		}
	}
}

func TestReadersSeeAStreamThatRuns(t *testing.T) {
	tr, count := begin(&streamtrace.Tracer{Messages: 4})
	var wg sync.WaitGroup
	for _, write := range []func(){
		func() { count.Received(1, nil) }, func() { count.Received(1, nil) }, func() { count.Sent(1, nil) },
		func() { tr.Note(streamtrace.Move, streamtrace.Down, "", streamerr.PeerLost, nil) },
	} {
		wg.Go(func() {
			for range 1000 {
				write()
			}
		})
	}
	for range 100 {
		if r := recordOf(tr); len(r.GetEvents()) > 2*2*4+32 {
			t.Fatal(len(r.GetEvents()))
		}
	}
	wg.Wait()
	if r := recordOf(tr); r.GetMessagesReceived() != 2000 || r.GetMessagesSent() != 1000 {
		t.Error(r)
	}
}

func TestNilAcceptsAllCalls(t *testing.T) {
	tr, _ := begin(nil)
	tr.Header(streamtrace.SendHeader, streamtrace.Up, "")
	tr.Stopping(time.Now(), &streamerr.Error{Path: streamerr.NewPath("client")})
	if r := recordOf(tr); tr != nil || tr.ID() != "" || tr.Parent().Valid() || len(r.GetEvents()) != 0 {
		t.Error(tr, r)
	}
}

func TestMessagesAllocateNothing(t *testing.T) {
	for name, tracer := range map[string]*streamtrace.Tracer{"off": nil, "states only": {}, "on": {Messages: 4}} {
		_, count := begin(tracer)
		if n := testing.AllocsPerRun(1000, func() {
			count.Received(1, nil)
			count.Wrote(9)
			count.Sent(1, nil)
		}); n != 0 {
			t.Errorf("%s: %v allocations per message", name, n)
		}
	}
}

// BenchmarkMessage measures the cost of a message that comes from below and is passed on.
func BenchmarkMessage(b *testing.B) {
	for _, c := range []struct {
		name   string
		tracer *streamtrace.Tracer
	}{{"off", nil}, {"states only", &streamtrace.Tracer{}}, {"on", &streamtrace.Tracer{Messages: streamtrace.DefaultMessages}}} {
		b.Run(c.name, func(b *testing.B) {
			_, count := begin(c.tracer)
			b.ReportAllocs()
			for b.Loop() {
				count.Received(1, nil)
				count.Wrote(9)
				count.Sent(1, nil)
			}
		})
	}
}

// BenchmarkBegin measures the cost of a stream before its first message.
func BenchmarkBegin(b *testing.B) {
	tracer := &streamtrace.Tracer{Messages: streamtrace.DefaultMessages}
	b.ReportAllocs()
	for b.Loop() {
		tracer.Begin(tally.New(time.Now()), streamtrace.Parent{}, "").Header(streamtrace.RecvHeader, streamtrace.Up, "")
	}
}

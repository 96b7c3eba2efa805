package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

var served = monitor.Method{Side: monitor.Server, System: monitor.GRPC, Name: "prices.Prices/Watch"}

func TestMain(m *testing.M) { kitextest.Main(m) }

// TestFiguresOfLiveAndEndedStreams: the metrics of package telemetry are these figures.
func TestFiguresOfLiveAndEndedStreams(t *testing.T) {
	r := monitor.New(monitor.Config{Name: "exchange"})
	s := r.Begin(kitextest.Context(t), monitor.Call{Method: served})
	s.Received(10)
	s.Sent(5)
	s.Sent(6)
	for _, e := range []*streamerr.Error{
		monitor.Completed(),
		{Reason: streamerr.PeerReset, Path: streamerr.NewPath("shop")},
		{Reason: streamerr.Overloaded, Path: streamerr.NewPath("leaf", "exchange")},
		{Reason: streamerr.Overloaded, Path: streamerr.NewPath("leaf", "below")},
	} {
		if s.Ending() != nil {
			t.Error("the stream had ended")
		}
		s.End(e)
		s.End(&streamerr.Error{Reason: streamerr.Internal}) // does not count
		if got := s.Ending(); got.Reason != e.Reason || got.Path[len(got.Path)-1] != "exchange" {
			t.Errorf("the ending is %v", got)
		}
		s = r.Begin(kitextest.Context(t), monitor.Call{Method: served})
	}
	s.Sent(7)
	all := r.Figures()
	if len(all) != 1 {
		t.Fatalf("there are figures of %d methods, not 1", len(all))
	}
	f := all[0]
	endings := map[monitor.Endings]bool{}
	for _, e := range f.Endings {
		endings[e] = true
	}
	for _, want := range []monitor.Endings{{"completed", "self", 1}, {"peer_reset", "peer", 1}, {"overloaded", "peer", 1}, {"overloaded", "beyond", 1}} {
		if !endings[want] {
			t.Errorf("the endings are %v, without %v", f.Endings, want)
		}
	}
	gaps := uint64(0)
	for _, n := range f.Sent.Gaps.Counts {
		gaps += n
	}
	if f.Live != 1 || f.Received.Messages != 1 || f.Received.Bytes != 10 || f.Sent.Messages != 3 || f.Sent.Bytes != 18 || gaps != 1 {
		t.Errorf("the figures are %+v", f)
	}
	if count(f.First) != 1 || count(f.Duration) != 4 {
		t.Errorf("%d streams have a first message, and %d a duration, not 1 and 4", count(f.First), count(f.Duration))
	}
}

func count(h monitor.Histogram) (all uint64) {
	for _, n := range h.Counts {
		all += n
	}
	return all
}

func TestUnboundedNamesShareALabel(t *testing.T) {
	r := monitor.New(monitor.Config{Name: "exchange"})
	r.Begin(kitextest.Context(t), monitor.Call{Method: served}).Discard()
	for n := 0; n < 499; n++ {
		m := served
		m.Name = fmt.Sprint("made up ", n)
		r.Begin(kitextest.Context(t), monitor.Call{Method: m}).End(monitor.Completed())
	}
	for n := 0; n < 100; n++ { // peers may send reasons of a later version, or any number
		r.Begin(kitextest.Context(t), monitor.Call{Method: served}).End(&streamerr.Error{Reason: streamerr.Reason(1000 + n)})
	}
	figures := r.Figures()
	if len(figures) != 201 {
		t.Errorf("%d methods have series, not 200 and the series of all other methods", len(figures))
	}
	others := map[string]uint64{}
	for _, f := range figures {
		for _, e := range f.Endings {
			if f.Name == monitor.Other {
				others[e.Reason] += e.N
			}
			if f.Name == served.Name && e.Reason != monitor.Other {
				t.Errorf("an unknown reason has the label %s", e.Reason)
			}
		}
	}
	if others["completed"] != 300 {
		t.Errorf("%d completed streams have the method other, not 300", others["completed"])
	}
}

func TestACauseSurvivesWrappedContexts(t *testing.T) {
	r := monitor.New(monitor.Config{Name: "exchange"})
	base, cancel := context.WithCancel(kitextest.Context(t))
	s := r.Begin(base, monitor.Call{Method: served, Peer: "shop", Stopped: func() *streamerr.Error {
		if base.Err() == nil {
			return nil
		}
		return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("user", "shop")}
	}})
	ctx, release := context.WithCancelCause(monitor.With(base, s))
	defer release(nil)
	if e := monitor.Cause(ctx); e != nil {
		t.Errorf("the context is not done, and its cause is %v", e)
	}
	cancel()
	if e := monitor.Cause(ctx); e == nil || e.Path.String() != "user > shop > exchange" {
		t.Errorf("the cause is %v", e)
	}
	mine, stop := context.WithCancelCause(kitextest.Context(t))
	stop(streamerr.New(streamerr.UserStop, "enough"))
	if e := monitor.Cause(mine); e == nil || e.Reason != streamerr.UserStop {
		t.Errorf("the cause is %v", e)
	}
}

func TestAnErrorIsRecognizedAsTheEndingOfACall(t *testing.T) {
	r := monitor.New(monitor.Config{Name: "exchange"})
	s := r.Begin(kitextest.Context(t), monitor.Call{Method: served})
	failed := errors.New("it failed")
	s.Below(failed, &streamerr.Error{Reason: streamerr.Overloaded, Path: streamerr.NewPath("leaf", "exchange")})
	for i := 0; i < 7; i++ {
		s.Below(errors.New("another"), monitor.Completed())
	}
	if e := s.Known(fmt.Errorf("leaf: %w", failed)); e == nil || e.Path.Origin() != "leaf" {
		t.Errorf("the error has the ending %v", e)
	}
	s.Below(errors.New("one more"), monitor.Completed())
	if e := s.Known(failed); e != nil {
		t.Errorf("more than 8 endings are kept: %v", e)
	}
}

// BenchmarkMessage measures the cost of a message, with metrics and events.
func BenchmarkMessage(b *testing.B) {
	s := monitor.New(monitor.Config{Name: "exchange"}).Begin(context.Background(), monitor.Call{Method: served})
	b.ReportAllocs()
	for n := 0; n < b.N; n++ {
		s.Sent(100)
	}
}

// BenchmarkStream measures the cost of a stream of one message that is not exported.
func BenchmarkStream(b *testing.B) {
	r := monitor.New(monitor.Config{Name: "exchange"})
	b.ReportAllocs()
	for n := 0; n < b.N; n++ {
		s := r.Begin(context.Background(), monitor.Call{Method: served})
		s.Sent(100)
		s.End(monitor.Completed())
	}
}

// TestASpanOfTheApplicationIsTheParent: another tracer's span in the context takes precedence over
// the caller's headers, and the headers of a call are not the application's.
func TestASpanOfTheApplicationIsTheParent(t *testing.T) {
	own := monitor.Parent{Trace: [16]byte{1}, Span: [8]byte{2}}
	type spanKey struct{}
	r := monitor.New(monitor.Config{Name: "exchange", Span: func(ctx context.Context) monitor.Parent {
		p, _ := ctx.Value(spanKey{}).(monitor.Parent)
		return p
	}})
	ctx := context.WithValue(kitextest.Context(t), spanKey{}, own)
	s := r.Begin(ctx, monitor.Call{Method: served, Parent: monitor.ParseParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")})
	var headers []string
	child := r.Begin(monitor.With(kitextest.Context(t), s), monitor.Call{Method: monitor.Method{Side: monitor.Client}})
	child.Headers(func(key, value string) { headers = append(headers, key+": "+value) })
	if all := strings.Join(headers, "\n"); strings.Contains("\n"+all, "\ntraceparent: ") || !strings.Contains(all, "whence-traceparent: 00-01000000000000000000000000000000-") {
		t.Errorf("a call of the handler has the headers %q", headers)
	}
}

// TestParentsOfCallers has the forms of W3C's Trace Context.
func TestParentsOfCallers(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
	for header, want := range map[string]string{
		"00-" + id + "-01":       "00-" + id + "-01",
		"00-" + id + "-03":       "00-" + id + "-03",
		"01-" + id + "-09-later": "00-" + id + "-01", // a later version
		"00-" + id + "-09":       "",                 // version 00 has no such flag
		"00-" + id + "-01-more":  "",
		"ff-" + id + "-01":       "",
		"00-" + id:               "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01": "",
		"": "",
	} {
		p := monitor.ReadParent(func(key string) string {
			return map[string]string{"traceparent": header, "tracestate": "vendor=x"}[key]
		})
		if p.Valid() != (want != "") || p.Valid() && (fmt.Sprintf("00-%x-%x-%02x", p.Trace, p.Span, p.Flags) != want || p.State != "vendor=x") {
			t.Errorf("%q is %+v, not %q", header, p, want)
		}
	}
	both := monitor.ReadParent(func(key string) string {
		return map[string]string{"traceparent": "00-" + id + "-01", "whence-traceparent": "00-" + strings.Repeat("1", 32) + "-" + strings.Repeat("2", 16) + "-00"}[key]
	})
	if both.Trace[0] != 0x11 {
		t.Errorf("the stream's own trace is %x", both.Trace)
	}
}

package streamtrace_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/tally"
)

// A keeper keeps the exported spans, also after its shutdown.
type keeper struct{ spans tracetest.SpanStubs }

func (k *keeper) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	k.spans = append(k.spans, tracetest.SpanStubsFromReadOnlySpans(spans)...)
	return nil
}
func (k *keeper) Shutdown(context.Context) error { return nil }

// exported returns the spans of the streams that run makes.
func exported(t *testing.T, tracer *streamtrace.Tracer, run func()) tracetest.SpanStubs {
	t.Helper()
	k := &keeper{}
	end := tracer.Export("service", k)
	run()
	if err := end(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k.spans
}

func beginTrace(tracer *streamtrace.Tracer) *streamtrace.Trace {
	tr, _ := begin(tracer)
	return tr
}

// endTrace ends a stream.
func endTrace(tracer *streamtrace.Tracer, tr *streamtrace.Trace, reason streamerr.Reason) {
	tracer.Ended(tr, reason, func() *streamv1.Record {
		r := &streamv1.Record{StreamId: "id", Hop: "hop", Model: "m", Reason: reason.Proto(), Path: []string{"origin", "hop"}, Message: "because", CachedTokens: new(uint32(0))}
		tr.Tell(r)
		return r
	})
}

func TestSpanHasTheIDsOfTheHeadersBelow(t *testing.T) {
	tracer := &streamtrace.Tracer{Messages: 1}
	above := streamtrace.ParseParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=x")
	var below streamtrace.Parent
	spans := exported(t, tracer, func() {
		count := tally.New(time.Now())
		tr := tracer.Begin(count, above, "a.B/C")
		below = tr.Parent()
		tr.Header(streamtrace.RecvHeader, streamtrace.Up, "", "client")
		for range 3 {
			count.Sent(1, nil)
		}
		tr.Note(streamtrace.SendTrailer, streamtrace.Up, "Internal", streamerr.Internal, streamerr.NewPath("origin", "hop"))
		endTrace(tracer, tr, streamerr.Internal)
	})
	if len(spans) != 1 {
		t.Fatal(spans)
	}
	s := spans[0]
	headers := map[string]string{}
	below.Each(func(key, value string) { headers[key] = value })
	if want := fmt.Sprintf("00-%s-%s-00", s.SpanContext.TraceID(), s.SpanContext.SpanID()); headers["traceparent"] != want || headers["tracestate"] != "vendor=x" {
		t.Errorf("the headers for the hop below are %v, the span is %s", headers, want)
	}
	if s.Parent.SpanID().String() != "b7ad6b7169203331" || s.SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || !s.Parent.IsRemote() {
		t.Error(s.Parent, s.SpanContext)
	}
	if s.Name != "chat m" || s.SpanKind != trace.SpanKindServer || s.Status.Code != codes.Error || s.Status.Description != "because" || len(s.Events) != 4 {
		t.Errorf("%+v", s)
	}
	has := map[string]string{}
	for _, a := range s.Attributes {
		has[string(a.Key)] = a.Value.String()
	}
	for key, want := range map[string]string{
		"whence.stream.id": "id", "whence.hop": "hop", "whence.reason": "internal", "whence.origin": "origin", "whence.path": "origin > hop",
		"rpc.method": "a.B/C", "rpc.response.status_code": "INTERNAL", "error.type": "internal", "whence.messages.sent": "3", "gen_ai.operation.name": "chat",
		"gen_ai.usage.cache_read.input_tokens": "0",
	} {
		if has[key] != want {
			t.Errorf("%s is %q, want %q", key, has[key], want)
		}
	}
}

func TestSpanIsNamedByItsOperation(t *testing.T) {
	tracer := &streamtrace.Tracer{}
	spans := exported(t, tracer, func() {
		tr, _ := begin(tracer)
		tr.Does("embeddings")
		endTrace(tracer, tr, streamerr.Internal)
	})
	if len(spans) != 1 || spans[0].Name != "embeddings m" {
		t.Fatal(spans)
	}
	for _, a := range spans[0].Attributes {
		if a.Key == "gen_ai.operation.name" && a.Value.AsString() != "embeddings" {
			t.Error(a)
		}
	}
}

func TestStreamsThatDidNotCompleteAreExported(t *testing.T) {
	for reason, status := range map[streamerr.Reason]codes.Code{
		streamerr.Completed: 99, streamerr.ClientGone: codes.Unset, streamerr.UserStop: codes.Unset,
		streamerr.OperatorStop: codes.Error, streamerr.PeerLost: codes.Error, streamerr.Deadline: codes.Error, streamerr.Invalid: codes.Error,
	} {
		tracer := &streamtrace.Tracer{}
		spans := exported(t, tracer, func() { endTrace(tracer, beginTrace(tracer), reason) })
		switch {
		case status == 99 && len(spans) != 0:
			t.Errorf("%s was exported with a ratio of 0", reason)
		case status != 99 && (len(spans) != 1 || spans[0].Status.Code != status):
			t.Errorf("%s: %+v", reason, spans)
		}
	}
}

// TestHopsChooseTheSameTraces: a hop with a larger ratio exports all traces that a hop with a
// smaller ratio exports.
func TestHopsChooseTheSameTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 4000
		few, half, all := &streamtrace.Tracer{Ratio: 0.1}, &streamtrace.Tracer{Ratio: 0.5}, &streamtrace.Tracer{Ratio: 1}
		chosen := map[*streamtrace.Tracer]map[string]bool{}
		var parents []streamtrace.Parent
		for _, tracer := range []*streamtrace.Tracer{all, half, few} {
			ids := map[string]bool{}
			for _, s := range exported(t, tracer, func() {
				for i := range streams {
					var parent streamtrace.Parent
					if tracer != all {
						parent = parents[i]
					}
					tr := tracer.Begin(tally.New(time.Now()), parent, "")
					if tracer == all {
						parents = append(parents, tr.Parent())
					}
					endTrace(tracer, tr, streamerr.Completed)
					if i%256 == 0 {
						synctest.Wait() // the exporter's queue is bounded
					}
				}
			}) {
				ids[s.SpanContext.TraceID().String()] = true
			}
			chosen[tracer] = ids
		}
		for id := range chosen[few] {
			if !chosen[half][id] {
				t.Errorf("%s is exported with a ratio of 0.1, and not with 0.5", id)
			}
		}
		if n := len(chosen[few]); n < streams/20 || n > streams/5 {
			t.Errorf("%d of %d are a ratio of 0.1", n, streams)
		}
		if n := len(chosen[half]); n < streams/3 || n > streams*2/3 {
			t.Errorf("%d of %d are a ratio of 0.5", n, streams)
		}
	})
}

// TestEndingsDoNotWaitForExporters: an exporter that hangs loses spans, and delays no stream. The
// virtual clock does not advance while a goroutine runs.
func TestEndingsDoNotWaitForExporters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer := &streamtrace.Tracer{}
		hung := make(hangingExporter)
		end := tracer.Export("service", hung)
		began := time.Now()
		for range 10000 {
			endTrace(tracer, beginTrace(tracer), streamerr.Internal)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("10,000 endings took %v with an exporter that hangs", took)
		}
		close(hung)
		if err := end(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

type hangingExporter chan struct{}

func (h hangingExporter) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { <-h; return nil }
func (h hangingExporter) Shutdown(context.Context) error                        { return nil }

func FuzzParseParent(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b,c=d")
	f.Add("00-00000000000000000000000000000000-b7ad6b7169203331-01", "")
	f.Add("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "=")
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-04", "")
	f.Add("00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
	f.Add("", "a=b")
	f.Fuzz(func(t *testing.T, traceparent, tracestate string) {
		p := streamtrace.ParseParent(traceparent, tracestate)
		told := map[string]string{}
		p.Each(func(key, value string) { told[key] = value })
		var w3c propagation.TraceContext
		carrier := propagation.MapCarrier{}
		w3c.Inject(w3c.Extract(t.Context(), propagation.MapCarrier{streamtrace.Traceparent: traceparent, streamtrace.Tracestate: tracestate}), carrier)
		if !maps.Equal(told, carrier) {
			t.Errorf("%q, %q: %v; OpenTelemetry has %v", traceparent, tracestate, told, carrier)
		}
		if !p.Valid() {
			if len(told) != 0 {
				t.Errorf("%q is not a parent, but sets %v", traceparent, told)
			}
			return
		}
		if again := streamtrace.ParseParent(told["traceparent"], told["tracestate"]); fmt.Sprint(again) != fmt.Sprint(p) {
			t.Errorf("%q: %v became %v", traceparent, p, again)
		}
	})
}

// TestPlaceIsOfAnExportedSpan: measurements link only to spans that are exported.
func TestPlaceIsOfAnExportedSpan(t *testing.T) {
	var none *streamtrace.Trace
	for name, c := range map[string]struct {
		ratio  float64
		shown  bool
		reason streamerr.Reason
		want   bool
	}{
		"completed, and not of the ratio": {0, true, streamerr.Completed, false},
		"completed, and of the ratio":     {1, true, streamerr.Completed, true},
		"failed":                          {0, true, streamerr.PeerLost, true},
		"nobody is shown spans":           {1, false, streamerr.PeerLost, false},
	} {
		tracer := &streamtrace.Tracer{Ratio: c.ratio}
		if c.shown {
			defer tracer.Export("test")(context.Background())
		}
		tr, _ := begin(tracer)
		place := trace.SpanContextFromContext(tr.Place(c.reason))
		if place.IsSampled() != c.want || c.want && place.TraceID().String() != tr.ID() {
			t.Errorf("%s: %v", name, place)
		}
	}
	if place := trace.SpanContextFromContext(none.Place(streamerr.PeerLost)); place.IsValid() {
		t.Errorf("without a trace: %v", place)
	}
}

func TestParentOfOurHopsCostsOneAllocation(t *testing.T) {
	var told string
	if n := testing.AllocsPerRun(100, func() {
		streamtrace.ParseParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "").Each(func(_, value string) { told = value })
	}); n > 1 || len(told) != 55 {
		t.Errorf("%v allocations for %q", n, told)
	}
}

package e2e

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/lab"
)

// A collector receives spans by OTLP, like an OpenTelemetry Collector.
type collector struct {
	coltracepb.UnimplementedTraceServiceServer
	addr string // of OTLP over HTTP: host:port

	mu    sync.Mutex // guards the following field
	spans []span
}

// A span has the fields of an exported span that the tests read.
type span struct {
	service, trace, id, parent string
	attributes                 map[string]string
	status                     tracepb.Status_StatusCode
	events                     []spanEvent
}

type spanEvent struct {
	name       string
	at         uint64 // nanoseconds since 1970
	attributes map[string]string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body = unzipped
		}
		b, err := io.ReadAll(body)
		var req coltracepb.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(b, &req) != nil {
			http.Error(w, "not a request", http.StatusBadRequest)
			return
		}
		c.take(&req)
		b, _ = proto.Marshal(&coltracepb.ExportTraceServiceResponse{})
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(b)
	})
	mux.HandleFunc("POST /v1/metrics", func(http.ResponseWriter, *http.Request) {}) // the same flag exports metrics, too
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	c.addr = s.Listener.Addr().String()
	return c
}

// overGRPC serves OTLP over gRPC, and returns the address.
func (c *collector) overGRPC(t *testing.T) (addr string) {
	t.Helper()
	ln, s := listenLocal(t), grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(s, c)
	go s.Serve(ln) // until Stop
	t.Cleanup(s.Stop)
	return ln.Addr().String()
}

// Export implements coltracepb.TraceServiceServer.
func (c *collector) Export(_ context.Context, req *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	c.take(req)
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

func (c *collector) take(req *coltracepb.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range req.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				got := span{
					service: attributes(resource.GetResource().GetAttributes())["service.name"],
					trace:   hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()), parent: hex.EncodeToString(s.GetParentSpanId()),
					attributes: attributes(s.GetAttributes()), status: s.GetStatus().GetCode(),
				}
				for _, e := range s.GetEvents() {
					got.events = append(got.events, spanEvent{e.GetName(), e.GetTimeUnixNano(), attributes(e.GetAttributes())})
				}
				c.spans = append(c.spans, got)
			}
		}
	}
}

func attributes(kvs []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, kv := range kvs {
		all[kv.GetKey()] = kv.GetValue().GetStringValue()
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_IntValue:
			all[kv.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		case *commonpb.AnyValue_BoolValue:
			all[kv.GetKey()] = strconv.FormatBool(v.BoolValue)
		case *commonpb.AnyValue_ArrayValue:
			for _, each := range v.ArrayValue.GetValues() {
				all[kv.GetKey()] += each.GetStringValue() + ";"
			}
		}
	}
	return all
}

// of waits for the spans of a stream, one from each of n hops, and returns them by hop.
func (c *collector) of(t *testing.T, stream string, hops int) map[string]span {
	t.Helper()
	found := map[string]span{}
	polltest.Eventually(t, "all hops have exported the stream", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		clear(found)
		for _, s := range c.spans {
			if s.attributes["whence.stream.id"] == stream {
				if _, twice := found[s.attributes["whence.hop"]]; twice {
					t.Fatalf("%s exported %s twice", s.service, stream)
				}
				found[s.attributes["whence.hop"]] = s
			}
		}
		return len(found) == hops
	})
	return found
}

// states returns the events of a span that are not messages, in chronological order, each with its
// side.
func (s span) states() (all []string) {
	slices.SortStableFunc(s.events, func(a, b spanEvent) int { return cmp.Compare(a.at, b.at) })
	for _, e := range s.events {
		if e.name != "send" && e.name != "recv" {
			all = append(all, e.name+" "+e.attributes["whence.side"])
		}
	}
	return all
}

// TestStoppedStreamIsOneTree: over either protocol, the spans of three processes are one trace, below
// the client's span. Each has its events in order: the stop goes down, the ending comes up.
func TestStoppedStreamIsOneTree(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"grpc", "http"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			c := newCollector(t)
			to := c.addr
			if scheme == "grpc" {
				to = c.overGRPC(t)
			}
			w := run(t, separate, flags{all: []string{"--otlp", scheme + "://" + to}, worker: []string{"--pace", "40"}})
			polltest.Eventually(t, "a stop is answered within the grace", func() bool { // not while the machine stands still
				l := w.open(t, greedy(long)).begun(t)
				w.cancel(t, w.api, l.id)
				l.failed(t)
				spans := c.of(t, l.id, len(hops))
				for _, s := range spans {
					if states := s.states(); slices.Contains(states, "send_rst down") && !slices.Contains(states, "recv_trailer down") {
						return false
					}
				}
				w.oneTree(t, l.id, spans)
				return true
			})
		})
	}
}

// oneTree checks the spans of a stopped stream by hop, and compares them with its log and its story.
func (w *whence) oneTree(t *testing.T, id string, spans map[string]span) {
	t.Helper()
	parent, messages := "", map[string]bool{}
	trace := spans[apiService].trace
	for i, hop := range hops {
		s := spans[hop]
		if s.service != lab.ServiceOf(hop) || s.trace != trace || s.parent != parent || s.id == "" {
			t.Errorf("%s exported a span of %s in trace %s below %q; want trace %s, below %q", hop, s.service, s.trace, s.parent, trace, parent)
		}
		if s.attributes["whence.reason"] != "user_stop" || s.attributes["whence.origin"] != "client" || s.status != tracepb.Status_STATUS_CODE_UNSET {
			t.Errorf("%s: %v %v", hop, s.attributes, s.status)
		}
		want := []string{
			"recv_header up", "send_header down", "recv_header down", "send_header up",
			"recv_rst up", "send_rst down", "recv_trailer down", "send_trailer up",
		}
		if i == len(hops)-1 { // only the engine is below
			want = []string{"recv_header up", "send_header up", "recv_rst up", "send_trailer up"}
		}
		if got := s.states(); !slices.Equal(got, want) {
			t.Errorf("%s: %v\nwant %v", hop, got, want)
		}
		for _, e := range s.events {
			messages[e.name] = true
		}
		parent = s.id
	}
	if !messages["send"] || !messages["recv"] {
		t.Errorf("the spans have the events %v", messages)
	}
	if got := w.ended(t, apiService, id); got.Trace != trace {
		t.Errorf("the log has the trace %q, the span %q", got.Trace, trace)
	}
	for _, h := range w.why(t, id).Hops {
		if h.Trace != trace || len(h.Events) == 0 || h.Messages.Sent == 0 {
			t.Errorf("the story of %s: trace %s, %d events, %+v", h.Hop, h.Trace, len(h.Events), h.Messages)
		}
	}
}

// TestMoveIsAnEvent: the span of the hop that moves a stream has the old worker, the new worker and
// the reason, and the spans of both workers are below it.
func TestMoveIsAnEvent(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	w := runFleet(t, 2, flags{all: []string{"--otlp", c.addr, "--trace-ratio", "1"}, worker: []string{"--pace", "40"}})
	l := w.open(t, greedy(long, "max_tokens", 60)).begun(t)
	var first string
	polltest.Eventually(t, "a worker has the stream", func() bool {
		hops := w.why(t, l.id).Hops
		first = hops[len(hops)-1].Hop
		return len(hops) == 3
	})
	i := 0
	if first == workerName(1) {
		i = 1
	}
	w.workers[i].kill(t)
	l.completed(t)
	second := workerName(1 - i)
	spans := c.of(t, l.id, 3)
	if !slices.Equal(slices.Sorted(maps.Keys(spans)), []string{apiService, chatService, second}) {
		t.Fatalf("%v", slices.Sorted(maps.Keys(spans)))
	}
	var moved, lost bool
	for _, e := range spans[chatService].events {
		moved = moved || e.name == "move" && e.attributes["whence.path"] == first+" > "+second && e.attributes["whence.reason"] == "peer_lost"
		lost = lost || e.name == "recv_rst" && e.attributes["whence.code"] == "LOST" && e.attributes["whence.path"] == first
	}
	if !moved || !lost {
		t.Errorf("%+v", spans[chatService].events)
	}
	if spans[second].parent != spans[chatService].id {
		t.Errorf("%s is below %s, not %s", second, spans[second].parent, spans[chatService].id)
	}
	for hop, s := range spans {
		if got := s.attributes["gen_ai.response.finish_reasons"]; got != "length;" {
			t.Errorf("%s has the finish reasons %q", hop, got)
		}
	}
	has := spans[apiService].attributes
	if has["gen_ai.request.stream"] != "true" || has["gen_ai.response.id"] != "chatcmpl-"+l.id || has["gen_ai.request.model"] == "" {
		t.Errorf("%v", has)
	}
}

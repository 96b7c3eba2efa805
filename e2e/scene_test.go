package e2e

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/loopback"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/rpc/mtls/mtlstest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// The hops of a scene.
const (
	api0 = lab.Edge0
	api1 = lab.Edge1 // another replica, in front of the same chat-service
	work = lab.Worker0
	lost = lab.Worker1 // the first worker of a stream that moves to llm-worker/0
)

// A scene is a path of separate processes, with two api-services, for one row of the table: a
// stream and its fault. api-service/0 and chat-service may be one process, a gateway.
type scene struct {
	*whence // through api-service/0
	t       *testing.T
	flags   flags
	id      string              // of the stream
	traces  string              // the directory of their spans
	procs   map[string]*process // by hop
	counts  map[string]float64  // endings that metrics had, by hop and labels, before this stream
	addrs   map[string]string   // by hop
	at      time.Time           // of the fault
	// occupied says that another stream has the worker's only slot.
	occupied bool
}

// stage starts the processes of a row, and returns when they answer. The services have built-in
// faults, and write their spans to the directory traces.
func stage(t *testing.T, id, traces string, f flags) *scene {
	t.Helper()
	s := &scene{t: t, flags: f, id: id, traces: traces, procs: map[string]*process{}, addrs: map[string]string{}, counts: map[string]float64{}}
	var workers string
	switch {
	case f.moves:
		s.start(llmWorker, lost, "127.0.0.1:0", f.all, f.worker)
		s.addrs[work] = freeAddr(t)
		workers = s.addrs[lost] + "," + s.addrs[work]
	case f.beside:
		s.start(llmWorker, work, "127.0.0.1:0", f.all, f.worker)
		s.start(llmWorker, lost, "127.0.0.1:0", f.all, f.left)
		workers = s.addrs[work] + "," + s.addrs[lost] // among workers with equal load, the second is chosen first
	default:
		s.start(llmWorker, work, "127.0.0.1:0", f.all, f.worker)
		workers = s.addrs[work]
	}
	edges := []string{api0, api1}
	client := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.over != "" {
		var pair mtlstest.Pair
		pair, client.RootCAs = newCertificate(t)
		edges, f.api = edges[:1], append([]string{"--tls-cert", pair.Cert, "--tls-key", pair.Key}, f.api...)
	}
	callees := len(s.procs)
	if f.gateway {
		s.start("gateway", api0, "127.0.0.1:0", []string{"--worker", workers, "--chat-listen", "127.0.0.1:0"}, f.all, f.api, ofGateway(f.chat))
		s.procs[chatService], s.addrs[chatService] = s.procs[api0], must(t)(s.procs[api0].GRPC())
		edges = edges[1:]
	} else {
		s.start(chatService, chatService, "127.0.0.1:0", []string{"--worker", workers}, f.all, f.chat)
	}
	if f.beside {
		s.healthy(work)
		s.healthy(lost)
	}
	for _, hop := range edges {
		s.start(apiService, hop, "127.0.0.1:0", []string{"--chat", s.addrs[chatService]}, f.all, f.api)
	}
	transport := &http.Transport{TLSClientConfig: client}
	t.Cleanup(transport.CloseIdleConnections)
	s.whence = &whence{
		topology: separate, tls: f.over != "", api: s.addrs[api0], chat: s.addrs[chatService], worker: s.addrs[work],
		processes: map[string]*process{llmWorker: s.procs[work]},
		http:      &http.Client{Transport: transport},
		client:    workerv1.NewWorkerClient(dialGRPC(t, s.addrs[work])),
	}
	awaitLinks(t, s.procs[chatService], callees)
	if !f.gateway {
		awaitLinks(t, s.procs[api0], 1)
	}
	s.ready(t)
	return s
}

// healthy waits until the chat-service uses a worker.
func (s *scene) healthy(hop string) {
	s.t.Helper()
	s.procs[chatService].logged(s.t, hop+" is healthy", func(r record) bool { return r.Msg == "worker is healthy" && r.Worker == hop })
}

// freeAddr returns a free address.
func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := loopback.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func (s *scene) start(service, hop, listen string, args ...[]string) {
	s.t.Helper()
	all := append([]string{service, "--listen", listen, "--log-json", "--name", hop, "--metrics-listen", "127.0.0.1:0", "--trace-ratio", "1", "--trace-file", s.traceFile(hop)}, slices.Concat(args...)...)
	file := binary(s.t, "faulty")
	if slices.Contains(s.flags.earlier, hop) {
		file = earlierBinary(s.t)
	}
	s.procs[hop] = startFile(s.t, "faulty", file, all...)
	s.addrs[hop] = s.procs[hop].listening(s.t)
}

// open requests the stream and returns at the first text.
func (s *scene) open(more ...any) *live {
	s.t.Helper()
	resp, err := s.send(s.t, greedy(long, append(more, "stream", true)...), s.id)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("status %d: %s", resp.StatusCode, readAll(s.t, resp).body)
	}
	l := newLive(resp)
	l.earlier = slices.Contains(s.flags.earlier, api0)
	s.t.Cleanup(l.close)
	return l.begun(s.t)
}

// occupy takes the worker's only slot.
func (s *scene) occupy() {
	s.t.Helper()
	s.whence.open(s.t, greedy(long)).begun(s.t)
	s.occupied = true
}

// openFlowing requests the stream on a new connection, and returns after three events.
func (s *scene) openFlowing() (*net.TCPConn, *bufio.Reader) {
	s.t.Helper()
	conn := s.dial(s.t, greedy(long, "stream", true), s.id)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for events, n := lab.NewEvents(resp.Body), 0; n < 3; {
		e, err := events.Next()
		if err != nil {
			s.t.Fatal(err)
		}
		if e.Comment == "" {
			n++
		}
	}
	return conn, r
}

// fault records the time and injects the row's fault.
func (s *scene) fault(f func()) {
	s.at = time.Now()
	f()
}

// whole requests an unstreamed answer and returns its error.
func (s *scene) whole(a ask) *refusal {
	s.t.Helper()
	resp, err := s.send(s.t, a, s.id)
	if err != nil {
		s.t.Fatal(err)
	}
	return readAll(s.t, resp).completion(s.t).Error
}

// statement returns the client's account.
func (r *refusal) statement() lab.Statement {
	if r == nil {
		return "nothing"
	}
	return lab.Say(r.reason(), r.Path)
}

// logged returns the account of a hop's log, which must have exactly one ending.
func (s *scene) logged(hop string) lab.Statement {
	var all []string
	for _, r := range s.procs[hop].Records() {
		if r.Stream != s.id || r.Hop != hop {
			continue
		}
		switch r.Msg {
		case "stream ended":
			all = append(all, r.Reason+": "+r.Path)
		case "request refused": // refused before the stream began
			all = append(all, r.Reason+": "+hop)
		}
	}
	return lab.Statement(strings.Join(all, " and "))
}

// record returns a hop's ledger record of the stream, or nil if there is none.
func (s *scene) record(hop string) *streamv1.Record {
	s.t.Helper()
	if lab.ServiceOf(hop) == apiService {
		return s.story(hop)
	}
	resp, err := streamv1.NewStreamsClient(dialGRPC(s.t, s.addrs[hop])).Why(s.t.Context(), &streamv1.WhyRequest{StreamId: s.id})
	if err != nil {
		if errors.Is(streamerr.FromGRPC(hop, err), streamerr.NotFound) {
			return nil
		}
		s.t.Fatal(err)
	}
	for _, r := range resp.GetHops() {
		if r.GetHop() == hop {
			return r
		}
	}
	return nil
}

// story returns the edge's own record in GET /v1/streams/{id}.
func (s *scene) story(hop string) *streamv1.Record {
	s.t.Helper()
	resp, err := s.http.Get(s.urlAt(s.addrs[hop], "/v1/streams/"+s.id))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var story struct {
		Hops []struct {
			Hop, State, Reason string
			Path               []string
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&story); err != nil {
		s.t.Fatal(err)
	}
	for _, h := range story.Hops {
		if h.Hop == hop {
			r := &streamv1.Record{Hop: hop, Path: h.Path, Reason: streamv1.Reason(streamv1.Reason_value["REASON_"+strings.ToUpper(h.Reason)])}
			if h.State == "ended" {
				r.State = streamv1.State_STATE_ENDED
			}
			return r
		}
	}
	return nil
}

// booked returns the account of a hop's ledger.
func (s *scene) booked(hop string) lab.Statement {
	s.t.Helper()
	r := s.record(hop)
	switch {
	case r == nil:
		return ""
	case r.GetState() != streamv1.State_STATE_ENDED:
		return lab.Statement(fmt.Sprintf("%v", r.GetState()))
	}
	return lab.Say(streamerr.Reason(r.GetReason()).String(), r.GetPath())
}

// counted returns the account of a hop's metrics: exactly one more stream must have ended with the
// wanted reason and kind of origin.
func (s *scene) counted(hop string, want lab.Statement) lab.Statement {
	s.t.Helper()
	reason, path, _ := strings.Cut(string(want), ": ")
	origin, _, _ := strings.Cut(path, " > ")
	found := s.procs[hop].scrape(s.t)
	n := found.Sum("whence_stream_endings_total", "hop="+hop, "reason="+reason, "origin="+lab.ServiceOf(origin))
	labels := strings.Join([]string{hop, reason, lab.ServiceOf(origin)}, " ")
	n, s.counts[labels] = n-s.counts[labels], n
	if n == 1 {
		return want
	}
	return lab.Statement(fmt.Sprintf("%v times %s from %s", n, reason, lab.ServiceOf(origin)))
}

// stopped returns the time from the fault until the engine stopped, by the worker's ledger.
func (s *scene) stopped() time.Duration {
	s.t.Helper()
	r := s.record(work)
	at := r.GetEnded()
	if r.GetStopConfirmed() != nil {
		at = r.GetStopConfirmed()
	}
	return at.AsTime().Sub(s.at)
}

package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/whence-dev/whence/internal/tier"
)

var tableFile = flag.String("whodunit", "", "append the table of TestWhodunit to this `file`")

// A row of the table has a fault and the expected ending on every hop.
type row struct {
	name     string
	flags    flags
	upstream http.HandlerFunc // an engine beside the worker; nil means the embedded engine
	left     http.HandlerFunc // an engine beside the worker that the stream has to leave; nil means the embedded engine
	id       string           // of the stream; an id with the prefix fault: selects a built-in fault
	act      func(s *scene) *refusal
	reason   string
	origin   []string // origin of the ending; the last element is the point where the ending enters the path
	path     []string // the hops that the stream crosses; nil means all of them
	dead     string   // the hop that was killed and cannot report
	leaves   string   // the hop that ends and can report only in its log
	deaf     bool     // the client cannot receive the ending
	still    bool     // the engine does not run, or cannot report
	gateway  bool     // api-service/0 and chat-service are one process
}

// inGateway returns r for api-service/0 and chat-service in one process. It reports false if the
// fault ends only the process of chat-service: a gateway has no such row.
func (r *row) inGateway() (joined row, ok bool) {
	joined = *r
	joined.gateway, joined.flags.gateway = true, true
	switch {
	case r.dead == chatService, r.leaves == chatService && r.path == nil:
		return row{}, false
	case r.dead == api0:
		joined.origin = []string{chatService} // the worker lost the connection from chat-service
	}
	return joined, true
}

// died reports whether a hop was killed and cannot report.
func (r *row) died(hop string) bool {
	return hop == r.dead || r.gateway && r.dead == api0 && hop == chatService
}

// ends reports whether a hop ends and can report only in its log.
func (r *row) ends(hop string) bool {
	return hop == r.leaves || r.gateway && (r.leaves == api0 || r.leaves == chatService) && (hop == api0 || hop == chatService)
}

// chain is the path of a stream, in the order of requests.
var chain = []string{api0, chatService, work}

// want returns the expected statement of a hop: the reason, and the path from the origin to the
// hop.
func (r *row) want(hop string) statement {
	entry := r.origin[len(r.origin)-1]
	from, to := slices.Index(chain, entry), slices.Index(chain, hop)
	way := slices.Clone(chain[min(from, to) : max(from, to)+1])
	if to < from {
		slices.Reverse(way)
	}
	return says(r.reason, append(slices.Clone(r.origin[:len(r.origin)-1]), way...))
}

// witnesses returns the hops that must report.
func (r *row) witnesses() []string {
	path := r.path
	if path == nil {
		path = chain
	}
	return slices.DeleteFunc(slices.Clone(path), r.died)
}

// A finding is the outcome of a row.
type finding struct {
	row     *row
	says    map[string][]statement // by hop: log, ledger, metrics, trace
	client  statement
	stopped time.Duration
	right   bool
}

// TestWhodunit runs every fault against separate processes. Every surviving hop must report the
// same reason, the same origin and the path up to itself, once, in its log, its ledger, its metrics
// and its span.
//
// The streams between the processes go over links. With the test flag -gateway api-service/0 and
// chat-service are one process.
func TestWhodunit(t *testing.T) {
	t.Parallel()
	playFaults(t, *asGateway, rows)
}

// TestWhodunitOverGRPC is TestWhodunit over gRPC, which carries the streams when a link cannot be
// made.
func TestWhodunitOverGRPC(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	playFaults(t, *asGateway, rows, overGRPC)
}

// TestWhodunitOfGateway runs some of the faults with api-service/0 and chat-service in one process.
func TestWhodunitOfGateway(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	some := []string{
		"client closes its connection", "client closes its WebSocket", "client closes before the first token", "client reads a byte at a time", "DELETE at the other replica",
		"deadline of the request", "api-service is killed", "api-service drains", "api-service gets a second signal", "chat-service panics",
		"chat-service drains between turns", "llm-worker is killed, another one continues", "llm-worker hangs", "gRPC caller cancels",
	}
	playFaults(t, true, slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !slices.Contains(some, r.name) }))
}

// playFaults runs rows of the table against services with additional flags, and reports the
// findings.
func playFaults(t *testing.T, gateway bool, rows []row, more ...string) {
	t.Helper()
	if gateway {
		rows = rowsInGateway(rows)
	}
	binary(t, "whence")
	_, _ = buildGRPCurl() // before any stream waits for a stop by grpcurl; rows that need grpcurl report if it is missing
	var mu sync.Mutex
	var found []*finding
	t.Cleanup(func() {
		if t.Failed() || *tableFile != "" {
			report(t, found, len(rows))
		}
	})
	for i := range rows {
		r := &rows[i]
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			f := &finding{row: r, says: map[string][]statement{}}
			traces := t.TempDir()
			var s *scene
			t.Cleanup(func() { // after the processes have ended: their logs are complete
				if f.right = !t.Failed(); s == nil {
					return // the scene was never set up
				}
				for _, hop := range r.witnesses() {
					if log := s.logged(hop); log != r.want(hop) {
						t.Errorf("the final log of %s has %q, want %q", hop, log, r.want(hop))
						f.right = false
					}
					if len(r.path) == 1 { // a request that the edge refuses is not a stream and has no span
						continue
					}
					traced := s.traced(t, hop)
					if f.says[hop] = append(f.says[hop], traced); traced != r.want(hop) {
						t.Errorf("the span of %s has %q, want %q", hop, traced, r.want(hop))
						f.right = false
					}
				}
				mu.Lock()
				defer mu.Unlock()
				found = append(found, f)
			})
			with := r.withUpstream(t)
			with.all = slices.Concat(with.all, more)
			s = stage(t, r.streamID(), traces, with)
			investigate(t, r, s, f)
		})
	}
}

func (r *row) streamID() string {
	if r.id != "" {
		return r.id
	}
	return "whodunit"
}

// withUpstream returns the row's flags, with those of its engine.
func (r *row) withUpstream(t *testing.T) flags {
	t.Helper()
	f := r.flags
	if r.upstream != nil {
		f.worker = append(onServer("openai", badEngine(t, r.upstream)), f.worker...)
	}
	if r.left != nil {
		f.left = append(onServer("openai", badEngine(t, r.left)), f.left...)
	}
	return f
}

func investigate(t *testing.T, r *row, s *scene, f *finding) {
	err := r.act(s)
	if f.client = err.statement(); !r.deaf && f.client != r.want(r.witnesses()[0]) {
		t.Errorf("the client reads %q, want %q", f.client, r.want(r.witnesses()[0]))
	}
	for _, hop := range r.witnesses() {
		want := r.want(hop)
		eventually(t, hop+" has logged the ending", func() bool { return s.logged(hop) != "" })
		f.says[hop] = []statement{s.logged(hop)}
		if !r.ends(hop) && len(r.path) != 1 { // a request that the edge refuses is not a stream and is in no ledger
			f.says[hop] = append(f.says[hop], s.booked(hop), s.counted(hop, want))
		}
		for i, said := range f.says[hop] {
			if said != want {
				t.Errorf("%s, %s: %q, want %q", hop, [...]string{"log", "ledger", "metrics"}[i], said, want)
			}
		}
	}
	if !r.still && r.leaves != work {
		f.stopped = s.stopped()
	}
}

// report prints the table.
func report(t *testing.T, found []*finding, played int) {
	slices.SortFunc(found, func(a, b *finding) int { return slices.Index(names(), a.row.name) - slices.Index(names(), b.row.name) })
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	right := 0
	fmt.Fprintf(w, "\tfault\texpected\tthe client reads\tlog, ledger, metrics and trace agree on\tengine stopped after\n")
	for _, f := range found {
		mark := "WRONG"
		if f.right {
			mark = "ok"
			right++
		}
		var hops []string
		for _, hop := range f.row.witnesses() {
			said := slices.Compact(slices.Clone(f.says[hop]))
			switch {
			case len(said) == 1 && said[0] == f.row.want(hop):
				hops = append(hops, hop)
			default:
				hops = append(hops, fmt.Sprintf("%s: %q", hop, said))
			}
		}
		stopped := "-"
		if f.stopped != 0 {
			stopped = f.stopped.Round(10 * time.Microsecond).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s from %s\t%s\t%s\t%s\n", mark, f.row.name, f.row.reason, strings.Join(f.row.origin, " > "), f.client, strings.Join(hops, ", "), stopped)
	}
	_ = w.Flush() // into a string
	fmt.Fprintf(&b, "%d of %d rows right\n\n", right, played)
	appendTable(t, *tableFile, b.String())
}

// appendTable appends a table to a file, or logs it without a file.
func appendTable(t *testing.T, to, table string) {
	t.Helper()
	if to == "" {
		t.Log("\n" + table)
		return
	}
	file, err := os.OpenFile(to, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	if _, err := file.WriteString(table); err != nil {
		t.Error(err)
	}
}

// rowsInGateway returns the rows that exist for a gateway.
func rowsInGateway(rows []row) (all []row) {
	for _, r := range rows {
		if joined, ok := r.inGateway(); ok {
			all = append(all, joined)
		}
	}
	return all
}

func names() []string {
	var all []string
	for _, r := range rows {
		all = append(all, r.name)
	}
	return all
}

// TestEndingsTableInTheDocsIsCurrent compares the table in docs/reference/endings.md; -rewrite updates it.
func TestEndingsTableInTheDocsIsCurrent(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| fault | reason | origin, and the way into the path | in a gateway |\n|---|---|---|---|\n")
	for _, r := range rows {
		apart, gateway := strings.Join(r.origin, " > "), "the same"
		if joined, ok := r.inGateway(); !ok {
			gateway = "does not apply"
		} else if path := strings.Join(joined.origin, " > "); path != apart {
			gateway = path
		}
		fmt.Fprintf(&table, "| %s | `%s` | %s | %s |\n", r.name, r.reason, apart, gateway)
	}
	keepTable(t, "../docs/reference/endings.md", "<!-- rows -->\n", "<!-- end -->", table.String())
}

// keepTable checks that a document has the table between two marks; -rewrite updates it.
func keepTable(t *testing.T, file, begin, end, table string) {
	t.Helper()
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), begin)
	written, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no marks for the table", file)
	case written == table:
	case flag.Lookup("rewrite").Value.String() == "true":
		if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table in %s is not current; go test ./e2e -run Table -rewrite updates it", file)
	}
}

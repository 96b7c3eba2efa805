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
)

var tableFile = flag.String("whodunit", "", "append the table of TestWhodunit to this `file`")

// A row of the table: a fault, and what everybody must say of it.
type row struct {
	name     string
	flags    flags
	upstream http.HandlerFunc // an engine beside the worker; nil is the embedded one
	left     http.HandlerFunc // an engine beside the worker that the stream has to leave; nil is the embedded one
	id       string           // of the stream; one that begins with fault: names what is built in
	act      func(s *scene) *refusal
	reason   string
	origin   []string // who ended the stream; the last is where the ending enters the path
	path     []string // the hops that the stream crosses; nil is all of them
	dead     string   // the hop that has not lived to tell
	leaves   string   // the hop that ends, and can tell by its log only
	deaf     bool     // the client cannot be told
	still    bool     // the engine does not run, or cannot be asked
	gateway  bool     // api-service/0 and chat-service are one process
}

// inGateway returns r for api-service/0 and chat-service in one process. It reports false if the fault ends the process of
// chat-service alone, so that there is no such row.
func (r *row) inGateway() (joined row, ok bool) {
	joined = *r
	joined.gateway, joined.flags.gateway = true, true
	switch {
	case r.dead == chatService, r.leaves == chatService && r.path == nil:
		return row{}, false
	case r.dead == api0:
		joined.origin = []string{chatService} // the worker has lost the connection of chat-service
	}
	return joined, true
}

// died reports whether a hop has not lived to tell.
func (r *row) died(hop string) bool {
	return hop == r.dead || r.gateway && r.dead == api0 && hop == chatService
}

// ends reports whether a hop ends, and can tell by its log only.
func (r *row) ends(hop string) bool {
	return hop == r.leaves || r.gateway && (r.leaves == api0 || r.leaves == chatService) && (hop == api0 || hop == chatService)
}

// chain is the path of a stream, in the order of requests.
var chain = []string{api0, chatService, work}

// want is what a hop must say: the way from the origin to itself.
func (r *row) want(hop string) saying {
	entry := r.origin[len(r.origin)-1]
	from, to := slices.Index(chain, entry), slices.Index(chain, hop)
	way := slices.Clone(chain[min(from, to) : max(from, to)+1])
	if to < from {
		slices.Reverse(way)
	}
	return says(r.reason, append(slices.Clone(r.origin[:len(r.origin)-1]), way...))
}

// witnesses are the hops that must tell.
func (r *row) witnesses() []string {
	path := r.path
	if path == nil {
		path = chain
	}
	return slices.DeleteFunc(slices.Clone(path), r.died)
}

// A finding is a row as it turned out.
type finding struct {
	row     *row
	says    map[string][]saying // by hop: log, ledger, metrics, trace
	heard   saying
	stopped time.Duration
	right   bool
}

// TestWhodunit plays every fault against separate processes, and wants every hop that is left to name the same reason, the
// same origin and the path up to itself, once, in its log, its ledger, its metrics and its span.
//
// The streams between the processes go over links. With the test flag -gateway api-service/0 and chat-service are one process.
func TestWhodunit(t *testing.T) {
	t.Parallel()
	playFaults(t, *asGateway, rows)
}

// TestWhodunitOverGRPC is TestWhodunit over gRPC, as streams go where a link cannot be made.
func TestWhodunitOverGRPC(t *testing.T) {
	t.Parallel()
	playFaults(t, *asGateway, rows, overGRPC)
}

// TestWhodunitOfGateway plays some of the faults with api-service/0 and chat-service in one process.
func TestWhodunitOfGateway(t *testing.T) {
	t.Parallel()
	some := []string{
		"client closes its connection", "client closes its WebSocket", "client closes before the first token", "client reads a byte at a time", "DELETE at the other replica",
		"deadline of the request", "api-service is killed", "api-service drains", "api-service gets a second signal", "chat-service panics",
		"chat-service drains between turns", "llm-worker is killed, another goes on", "llm-worker hangs", "gRPC caller cancels",
	}
	playFaults(t, true, slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !slices.Contains(some, r.name) }))
}

// playFaults plays rows of the table against services with more flags, and reports them.
func playFaults(t *testing.T, gateway bool, rows []row, more ...string) {
	t.Helper()
	if gateway {
		rows = rowsInGateway(rows)
	}
	binary(t, "whence")
	_, _ = buildGRPCurl() // while no stream waits to be stopped with it; the rows that need it say if it is missing
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
			f := &finding{row: r, says: map[string][]saying{}}
			traces := t.TempDir()
			var s *scene
			t.Cleanup(func() { // once the processes have ended: nobody has anything to add
				if f.right = !t.Failed(); s == nil {
					return // it never stood
				}
				for _, hop := range r.witnesses() {
					if log := s.logged(hop); log != r.want(hop) {
						t.Errorf("%s logged %q in the end, want %q", hop, log, r.want(hop))
						f.right = false
					}
					if len(r.path) == 1 { // what is refused at the door is no stream, and has no span
						continue
					}
					traced := s.traced(t, hop)
					if f.says[hop] = append(f.says[hop], traced); traced != r.want(hop) {
						t.Errorf("%s left the span %q, want %q", hop, traced, r.want(hop))
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
		f.worker = append([]string{"--engine", "openai", "--upstream", badEngine(t, r.upstream)}, f.worker...)
	}
	if r.left != nil {
		f.left = append([]string{"--engine", "openai", "--upstream", badEngine(t, r.left)}, f.left...)
	}
	return f
}

func investigate(t *testing.T, r *row, s *scene, f *finding) {
	heard := r.act(s)
	if f.heard = heard.heard(); !r.deaf && f.heard != r.want(r.witnesses()[0]) {
		t.Errorf("the client reads %q, want %q", f.heard, r.want(r.witnesses()[0]))
	}
	for _, hop := range r.witnesses() {
		want := r.want(hop)
		eventually(t, hop+" has logged the ending", func() bool { return s.logged(hop) != "" })
		f.says[hop] = []saying{s.logged(hop)}
		if !r.ends(hop) && len(r.path) != 1 { // what is refused at the door is no stream, and in no ledger
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
		fmt.Fprintf(w, "%s\t%s\t%s from %s\t%s\t%s\t%s\n", mark, f.row.name, f.row.reason, strings.Join(f.row.origin, " > "), f.heard, strings.Join(hops, ", "), stopped)
	}
	_ = w.Flush() // into a string
	fmt.Fprintf(&b, "%d of %d rows right\n\n", right, played)
	appendTable(t, *tableFile, b.String())
}

// appendTable appends a table to a file, or logs it where there is none.
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

// rowsInGateway returns the rows that there are for a gateway.
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

// TestTheTableInTheDocsIsTheOneThatIsPlayed keeps docs/endings.md; -rewrite writes it.
func TestTheTableInTheDocsIsTheOneThatIsPlayed(t *testing.T) {
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
	keepTable(t, "../docs/endings.md", "<!-- rows -->\n", "<!-- end -->", table.String())
}

// keepTable wants a table in a document, between two marks; -rewrite writes it there.
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
		t.Fatalf("%s has no place for the table", file)
	case written == table:
	case flag.Lookup("rewrite").Value.String() == "true":
		if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has another table than the tests play; go test ./e2e -run Table -rewrite writes it", file)
	}
}

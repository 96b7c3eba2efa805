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

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
)

var tableFile = flag.String("whodunit", "", "append the table of TestWhodunit to this `file`")

// A row plays a fault of the catalogue.
type row struct {
	name     string // in the catalogue
	flags    flags
	upstream http.HandlerFunc // an engine beside the worker; nil means the embedded engine
	left     http.HandlerFunc // an engine beside the worker that the stream has to leave; nil means the embedded engine
	over     []lab.Carrier    // of the client; nil means lab.Plain
	id       string           // of the stream; an id with the prefix fault: selects a built-in fault
	act      func(s *scene) *refusal

	lab.Ending // of the fault
}

// ofCatalogue returns rows with the endings of the catalogue. For a gateway, it leaves out faults that
// end only the process of chat-service.
func ofCatalogue(t *testing.T, rows []row, gateway bool) (all []row) {
	t.Helper()
	for _, r := range rows {
		f, ok := lab.FaultNamed(r.name)
		if !ok || f.Reason == "" {
			t.Fatalf("the catalogue has no ending for %q", r.name)
		}
		r.Ending = f.Ending
		if gateway {
			if r.Ending, ok = f.InGateway(); !ok {
				continue
			}
			r.flags.gateway = true
		}
		all = append(all, r)
	}
	return all
}

// A finding is the outcome of a row.
type finding struct {
	row     *row
	says    map[string][]lab.Statement // by hop: log, ledger, metrics, trace
	client  lab.Statement
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
	rows = ofCatalogue(t, rows, gateway)
	binary(t, "whence")
	_, _ = buildGRPCurl() // before any stream waits for a stop by grpcurl; rows that need grpcurl report if it is missing
	k := newTable(t, len(rows))
	for i := range rows {
		r := &rows[i]
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			f := k.add(r)
			traces := t.TempDir()
			var s *scene
			t.Cleanup(func() { // after the processes have ended: their logs are complete
				if f.right = !t.Failed(); s != nil {
					f.conclude(t, s)
				}
			})
			with := r.withUpstream(t)
			with.all = slices.Concat(with.all, more)
			s = stage(t, r.streamID(), traces, with)
			investigate(t, r, s, f)
		})
	}
}

// A table has the findings of the rows that are played.
type table struct {
	mu    sync.Mutex // guards found
	found []*finding
}

// newTable returns a table for a number of rows, which is printed at the end of the test if a row is wrong or
// a file is named.
func newTable(t *testing.T, rows int) *table {
	t.Helper()
	k := new(table)
	t.Cleanup(func() {
		if t.Failed() || *tableFile != "" {
			report(t, k.found, rows)
		}
	})
	return k
}

func (k *table) add(r *row) *finding {
	f := &finding{row: r, says: map[string][]lab.Statement{}}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.found = append(k.found, f)
	return f
}

// conclude checks the logs and spans of a scene whose processes have ended.
func (f *finding) conclude(t *testing.T, s *scene) {
	t.Helper()
	r := f.row
	for _, hop := range r.Witnesses() {
		if log := s.logged(hop); log != r.Want(hop) {
			t.Errorf("%s: the final log of %s has %q, want %q", r.name, hop, log, r.Want(hop))
			f.right = false
		}
		if len(r.Path()) == 1 { // a request that the edge refuses is not a stream and has no span
			continue
		}
		traced := s.traced(t, hop)
		if f.says[hop] = append(f.says[hop], traced); traced != r.Want(hop) {
			t.Errorf("%s: the span of %s has %q, want %q", r.name, hop, traced, r.Want(hop))
			f.right = false
		}
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
	if f.client = err.statement(); !r.Deaf && f.client != r.Want(r.Witnesses()[0]) {
		t.Errorf("the client reads %q, want %q", f.client, r.Want(r.Witnesses()[0]))
	}
	for _, hop := range r.Witnesses() {
		want := r.Want(hop)
		polltest.Eventually(t, hop+" has logged the ending", func() bool { return s.logged(hop) != "" })
		f.says[hop] = []lab.Statement{s.logged(hop)}
		if !r.IsLeaving(hop) && len(r.Path()) != 1 { // a request that the edge refuses is not a stream and is in no ledger
			f.says[hop] = append(f.says[hop], s.booked(hop), s.counted(hop, want))
		}
		for i, said := range f.says[hop] {
			if said != want {
				t.Errorf("%s, %s: %q, want %q", hop, [...]string{"log", "ledger", "metrics"}[i], said, want)
			}
		}
	}
	if !r.NoEngine && r.Leaves != work {
		f.stopped = s.stopped()
		if s.occupied {
			s.busy(t, 1, 0)
		} else {
			s.idle(t)
		}
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
		for _, hop := range f.row.Witnesses() {
			said := slices.Compact(slices.Clone(f.says[hop]))
			switch {
			case len(said) == 1 && said[0] == f.row.Want(hop):
				hops = append(hops, hop)
			default:
				hops = append(hops, fmt.Sprintf("%s: %q", hop, said))
			}
		}
		stopped := "-"
		if f.stopped != 0 {
			stopped = f.stopped.Round(10 * time.Microsecond).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s from %s\t%s\t%s\t%s\n", mark, f.row.name, f.row.Reason, f.row.Origin, f.client, strings.Join(hops, ", "), stopped)
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

func names() []string {
	var all []string
	for _, r := range slices.Concat(rows, securedRows) {
		all = append(all, r.name)
	}
	return all
}

// TestEveryEndingOfTheCatalogueIsPlayed: there is a row for each ending of the catalogue, and each of
// its carriers.
func TestEveryEndingOfTheCatalogueIsPlayed(t *testing.T) {
	t.Parallel()
	type rowOver struct {
		name string
		over lab.Carrier
	}
	missing := map[rowOver]bool{}
	for _, f := range lab.Faults {
		for _, over := range carriers(f.Over) {
			missing[rowOver{f.Name, over}] = f.Reason != ""
		}
	}
	for _, r := range slices.Concat(rows, securedRows) {
		for _, over := range carriers(r.over) {
			if !missing[rowOver{r.name, over}] {
				t.Errorf("the catalogue has no ending of %q over %s, or another row has played it", r.name, over)
			}
			missing[rowOver{r.name, over}] = false
		}
	}
	for p, absent := range missing {
		if absent {
			t.Errorf("no row plays %q over %s", p.name, p.over)
		}
	}
}

// carriers returns the carriers of a fault or of a row.
func carriers(over []lab.Carrier) []lab.Carrier {
	if over == nil {
		return []lab.Carrier{lab.Plain}
	}
	return over
}

// TestEndingsTableInTheDocsIsCurrent compares the table in bench/endings.md; -rewrite updates it.
func TestEndingsTableInTheDocsIsCurrent(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| fault | client over | reason | path, origin first | in a gateway |\n|---|---|---|---|---|\n")
	for _, f := range lab.Faults {
		if f.Reason == "" {
			continue
		}
		gateway := "the same"
		if joined, ok := f.InGateway(); !ok {
			gateway = "does not apply"
		} else if joined.Origin != f.Origin {
			gateway = joined.Origin
		}
		var over []string
		for _, c := range f.Over {
			over = append(over, string(c))
		}
		fmt.Fprintf(&table, "| %s | %s | `%s` | %s | %s |\n", f.Name, strings.Join(over, ", "), f.Reason, f.Origin, gateway)
	}
	keepTable(t, "../bench/endings.md", "<!-- rows -->\n", "<!-- end -->", table.String())
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

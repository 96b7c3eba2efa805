package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
)

var (
	lastMile      = flag.Int("lastmile", 3, "number of `readers` for each fault of TestLastMile")
	lastMileTable = flag.String("lastmile-table", "", "append the table of TestLastMile to this `file`")
)

const (
	tabsAtOnce = 20              // per fault
	cutFor     = 3 * time.Second // duration of a network outage
	milePace   = 25              // tokens a second
	mileTokens = 200             // of an answer, which lasts longer than an outage
	mileTexts  = 8               // number of different answers
)

// A mile is a fault between a stream and the tab that reads it.
type mile struct {
	name string
	from string             // the hop that the tabs connect to; "" means api-service/0, through the network
	act  func(m *mileScene) // injects the fault and returns when it is over
	cut  bool               // the fault breaks connections
}

// A mileScene is two replicas that share a Redis, a network before the first, and tabs.
type mileScene struct {
	*scene
	network *lab.Wire
	browser *tabs
}

// restartHop restarts a hop that has ended, on its old address.
func (m *mileScene) restartHop(hop string) {
	m.t.Helper()
	m.procs[hop].relaunch(m.t)
	m.ready(m.t)
}

var miles = []mile{
	{name: "the network resets connections, and refuses new ones for 3 s", cut: true, act: func(m *mileScene) {
		m.network.Set(lab.WireFault{Refuse: true})
		lab.Pause(m.t.Context(), cutFor)
		m.network.Set(lab.WireFault{})
	}},
	{name: "the network drops everything for 3 s, then resets", cut: true, act: func(m *mileScene) {
		m.network.Set(lab.Partition)
		lab.Pause(m.t.Context(), cutFor)
		m.network.Reset()
		m.network.Set(lab.WireFault{})
	}},
	{name: "the tab is reloaded", cut: true, act: func(m *mileScene) { m.browser.do("reload", nil) }},
	{name: "the api-service that runs the stream drains and restarts; the network resets in the meantime", cut: true, act: func(m *mileScene) {
		m.procs[api0].terminate(m.t)
		m.network.Reset()
		m.procs[api0].exit(m.t)
		m.restartHop(api0)
	}},
	{name: "the reader's api-service drains and restarts; another one runs the stream", from: api1, cut: true, act: func(m *mileScene) {
		m.procs[api1].terminate(m.t)
		m.procs[api1].exit(m.t)
		m.restartHop(api1)
	}},
	{name: "the reader's api-service is killed and restarts; another one runs the stream", from: api1, cut: true, act: func(m *mileScene) {
		m.procs[api1].kill(m.t)
		m.restartHop(api1)
	}},
	{name: "the api-service that runs the stream is killed and restarts", from: api0, cut: true, act: func(m *mileScene) {
		m.procs[api0].kill(m.t)
		m.restartHop(api0)
	}},
}

// A mileResult is a row of the table.
type mileResult struct {
	mile             *mile
	readers, good    int
	repeated, breaks int
	gaveUps          int
}

// TestLastMile: after every fault between a stream and a tab, the tab shows the engine's text
// exactly once. scripts/lastmile uses more tabs.
func TestLastMile(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	page := httptest.NewServer(http.FileServer(http.Dir("browser")))
	defer page.Close()
	server := startRedis(t)
	m := &mileScene{browser: openBrowser(t)}
	m.scene = stage(t, "", t.TempDir(), flags{
		api:    []string{"--redis", server.url, "--token-key", "for tests", "--cors-origin", page.URL},
		worker: []string{"--pace", fmt.Sprint(milePace)},
	})
	m.network = wired(t, m.addrs[api0])
	asks, want := m.wanted(t)
	var results []*mileResult
	for i := range miles {
		r := &mileResult{mile: &miles[i]}
		results = append(results, r)
		t.Run(r.mile.name, func(t *testing.T) {
			for r.readers < *lastMile {
				m.round(t, r, page.URL, asks, want)
			}
			if r.good != r.readers || r.repeated > 0 {
				t.Errorf("%d of %d readers have the engine's text; %d events were repeated, and %d readers gave up", r.good, r.readers, r.repeated, r.gaveUps)
			}
		})
	}
	writeMiles(t, results)
}

// wanted returns the requests of the tabs and their undisturbed answers.
func (m *mileScene) wanted(t *testing.T) (asks []ask, want []string) {
	t.Helper()
	want = make([]string, mileTexts)
	var wg sync.WaitGroup
	for i := range mileTexts {
		a := greedy(long, "temperature", 1, "seed", i, "max_tokens", mileTokens, "ignore_eos", true)
		asks = append(asks, a)
		wg.Go(func() { want[i] = m.answer(t, a) })
	}
	wg.Wait()
	return asks, want
}

// round opens some tabs, injects the fault, and checks their text.
func (m *mileScene) round(t *testing.T, r *mileResult, page string, asks []ask, want []string) {
	t.Helper()
	n := min(tabsAtOnce, *lastMile-r.readers)
	from := m.network.Addr()
	if r.mile.from != "" {
		from = m.addrs[r.mile.from]
	}
	url := fmt.Sprintf("%s/reader.html?api=http://%s&make=http://%s", page, from, m.addrs[api0])
	var requests []ask
	for i := range n {
		requests = append(requests, asks[(r.readers+i)%len(asks)])
	}
	before := m.browser.do("open", map[string]any{"url": url, "requests": requests})
	r.mile.act(m)
	for i, after := range m.browser.do("finish", nil) {
		r.note(t, before[i], after, want[(r.readers+i)%len(want)])
	}
	r.readers += n
}

// note checks one tab and records the result.
func (r *mileResult) note(t *testing.T, before, after tab, want string) {
	t.Helper()
	whole := after.Shown == want && strings.Join(after.Names, " ") == "usage ending"
	twice := len(after.IDs) - len(slices.Compact(slices.Sorted(slices.Values(after.IDs))))
	switch {
	case before.Text == "" || len(before.Text) >= len(want):
		t.Errorf("the fault was not in the middle: %d of %d bytes", len(before.Text), len(want))
	case r.mile.cut && after.Opened < 2:
		t.Errorf("the connection was not cut: it was made %d times", after.Opened)
	case whole && twice == 0:
		r.good++
	default:
		t.Errorf("stream %s: events %v, %d repeated, gave up %t, ending %s; the page shows\n%q, the engine sent\n%q", after.ID, after.Names, twice, after.GaveUp, after.Error.statement(), after.Shown, want)
	}
	r.repeated += twice
	r.breaks += max(0, after.Opened-1)
	if after.GaveUp {
		r.gaveUps++
	}
}

// writeMiles writes the table of bench/clients.md.
func writeMiles(t *testing.T, results []*mileResult) {
	t.Helper()
	var table strings.Builder
	table.WriteString("| fault in mid-stream | readers | text equals the engine's | repeated events | reconnects |\n|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&table, "| %s | %d | %d | %d | %d |\n", r.mile.name, r.readers, r.good, r.repeated, r.breaks)
	}
	appendTable(t, *lastMileTable, table.String())
}

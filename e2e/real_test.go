package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
)

// playing is the variable with which scripts/engines has TestEngines play: "all" or "short".
const playing = "WHENCE_ENGINES"

// exact is what a claim finds that holds for a server as for the embedded engine, or as the server itself
// answers.
const exact = "exact"

// A claim is a row of the table of engines: something that the documentation says of a server, played
// against the server itself. It returns exact, or in what the server differs.
type claim struct {
	name string
	play func(t *testing.T, s *realServer) (found string)
}

// A sitting is one start of a server, and the claims that are played against it, one after another.
type sitting struct {
	name   string
	short  bool // it is played in the full tier
	args   []string
	claims []*claim
}

// A column of the table is a make of server, and the API over which Whence uses it.
type column struct {
	file    string // of its results in testdata/engines
	server  string // for people, such as "vLLM"
	api     string // such as "`--engine openai`"
	version func(t *testing.T) string
	// start starts the server, which runs until the end of the test. Without what it needs, it ends the
	// test by calling missing.
	start    func(t *testing.T, args []string) *realServer
	sittings []sitting
	lacks    map[*claim]string // claims that need no play: what the server does not offer
}

// A realServer is a model server that runs. Its model is whence-tiny.
type realServer struct {
	*process
	t      *testing.T // of the sitting
	addr   string     // host:port
	worker []string   // flags of a worker beside it
	asks   bool       // it does not tell whether it has stopped
	names  bool       // its log-probabilities name tokens by their ids, if they are asked to
	// endless are the fields of an answer that does not end soon; nil means ignore_eos.
	endless []any
	// own returns the server's own answer to a text completion, without Whence.
	own func(t *testing.T, a ask) continuation
	// What the server says of itself, without Whence; nil if it does not say it: the requests that it runs,
	// the tokens that it has generated, and the tokens that its KV cache holds.
	running, generated func(t *testing.T) int
	tokens             func(t *testing.T) uint64
	path               *whence // one worker beside the server; nil until whence has started it
}

// columns are the servers, each over each of its APIs.
func columns() []*column {
	return []*column{vllmOverHTTP, vllmOverGRPC, llamaNative, llamaOverOpenAI, llamaOlder, ollamaNative, ollamaOverOpenAI}
}

// claims are the rows of the table, in its order.
func claims() []*claim {
	return []*claim{
		recognised, greedyAnswers, sampled, likelyTokens, guides, adapters, ownVectors, ownScores, overflow, crowded, cached, loaded, leaving, left, sleeping,
		killed, frozen, terminated, killedCore, frozenCore, takenOver, lostServer, lostRunner,
	}
}

// TestEngines plays the claims about model servers against the servers themselves, on a CPU, and records
// what they find in testdata/engines, from which TestTablesOfEngines makes the documentation. scripts/engines
// installs the servers and runs it; -run 'TestEngines/vLLM' plays some of it.
func TestEngines(t *testing.T) {
	tier.Full(t)
	how := os.Getenv(playing)
	if how == "" {
		t.Skip("scripts/engines plays the servers themselves")
	}
	for _, c := range columns() {
		t.Run(c.server+" "+strings.Trim(c.api, "`"), func(t *testing.T) {
			for _, s := range c.sittings {
				if how == "short" && !s.short {
					continue
				}
				t.Run(s.name, func(t *testing.T) { c.sit(t, s) })
			}
		})
	}
}

// sit plays a sitting.
func (c *column) sit(t *testing.T, s sitting) {
	begun := time.Now()
	server := c.start(t, s.args)
	server.t = t
	t.Logf("%s is ready after %v", c.server, time.Since(begun).Round(time.Second))
	for _, claim := range s.claims {
		t.Run(claim.name, func(t *testing.T) {
			if server.Ended() {
				t.Fatal("the server has ended")
			}
			begun := time.Now()
			found := claim.play(t, server)
			t.Logf("%s, %v", found, time.Since(begun).Round(time.Millisecond))
			if !t.Failed() {
				c.record(t, claim, found)
			}
		})
	}
}

// results are the file of a column.
type results struct {
	Server  string `json:"server"`
	API     string `json:"api"`
	Version string `json:"version"`
	Played  string `json:"played"` // the day of the last change
	// Found has what each claim has found, by its name.
	Found map[string]string `json:"found"`
}

func (c *column) path() string { return filepath.Join("testdata", "engines", c.file+".json") }

func (c *column) read(t *testing.T) *results {
	t.Helper()
	r := &results{Server: c.server, API: c.api}
	b, err := os.ReadFile(c.path())
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return r
}

// record writes what a claim has found on this version of the server. What it found on another version
// does not count any more.
func (c *column) record(t *testing.T, claim *claim, found string) {
	t.Helper()
	r, version := c.read(t), c.version(t)
	if r.Version != version || r.Found == nil {
		r.Version, r.Found = version, map[string]string{}
	}
	if r.Found[claim.name] == found {
		return
	}
	r.Found[claim.name], r.Played = found, time.Now().UTC().Format(time.DateOnly)
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(c.path(), append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tableOfClaims is the table of bench/engines.md.
func tableOfClaims(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| claim |")
	for _, c := range columns() {
		fmt.Fprintf(&b, " %s, %s |", c.server, c.api)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns())) + "\n")
	for _, row := range claims() {
		fmt.Fprintf(&b, "| %s |", row.name)
		for _, c := range columns() {
			found := c.read(t).Found[row.name]
			if found == "" {
				found = c.lacks[row]
			}
			if found == "" {
				found = "not tried"
			}
			fmt.Fprintf(&b, " %s |", found)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// tableOfServers is the table of README.md: the servers with which Whence has been played.
func tableOfServers(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| server | version | over | played |\n|---|---|---|---|\n")
	for _, c := range columns() {
		if r := c.read(t); len(r.Found) > 0 {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.Server, r.Version, r.API, r.Played)
		}
	}
	return b.String()
}

// TestTablesOfEngines keeps the tables in the documentation as the results are; -rewrite writes them.
func TestTablesOfEngines(t *testing.T) {
	keepTable(t, filepath.Join("..", "bench", "engines.md"), "<!-- claims, which scripts/engines plays -->\n", "<!-- end of claims -->", tableOfClaims(t))
	keepTable(t, filepath.Join("..", "README.md"), "<!-- servers that scripts/engines has played -->\n", "<!-- end of servers -->", tableOfServers(t))
}

// startReal starts a server that takes long to start, and returns when ready says so. All of its processes
// are killed at the end of the test.
func startReal(t *testing.T, c lab.Command, ready func() bool) *process {
	t.Helper()
	started, err := lab.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Process: started, awaited: true}
	t.Cleanup(func() {
		p.killFamily()
		if t.Failed() {
			t.Logf("%s logged:\n%s", c.Name, p.Tail())
		}
	})
	const startsWithin = 20 * time.Minute
	for begun := time.Now(); !ready(); {
		if p.Ended() || time.Since(begun) > startsWithin {
			t.Fatalf("%s does not start: %s", c.Name, p.Tail())
		}
		lab.Pause(t.Context(), 200*time.Millisecond)
	}
	return p
}

// killFamily kills a process and all that it has started.
func (p *process) killFamily() {
	family := p.family()
	_ = p.Kill() // it may have ended
	for _, pid := range family {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// family returns the processes that a process has started, and those that these have started. It must be
// asked before the process ends: its children then belong to others.
func (p *process) family() (pids []int) {
	parents := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			parents[parent] = append(parents[parent], pid)
		}
	}
	for next := []int{p.Pid()}; len(next) > 0; {
		children := parents[next[0]]
		pids, next = append(pids, children...), append(next[1:], children...)
	}
	return pids
}

// child returns the process of the family whose command line contains a text.
func (p *process) child(t *testing.T, text string) int {
	t.Helper()
	for _, pid := range p.family() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(line), text) {
			return pid
		}
	}
	t.Fatalf("%s has no process %s", p.Name, text)
	return 0
}

// responds reports whether a server answers a request for a path with 200.
func responds(addr, path string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// whence returns a Whence with one worker, which is beside the server, for all claims of a sitting.
func (s *realServer) whence() *whence {
	s.t.Helper()
	if s.path == nil {
		s.path = run(s.t, separate, flags{worker: s.worker})
	}
	return s.path
}

// pair starts a Whence with two workers: the first is beside the server, the second embedded.
func (s *realServer) pair(t *testing.T, more ...string) *whence {
	t.Helper()
	l := lab.Layout{Workers: 2, Chats: 1, Edges: 1, Chat: more, Own: map[string][]string{workerName(0): s.worker}}
	return assemble(t, l)
}

// openOn opens a stream that a certain worker answers, and returns it after its first text.
func (w *whence) openOn(t *testing.T, worker string, a ask) *live {
	t.Helper()
	var l *live
	polltest.Eventually(t, worker+" answers a stream", func() bool { // until its next probe, it may seem busy
		l = w.open(t, a).begun(t)
		if hops := w.why(t, l.id).Hops; hops[len(hops)-1].Hop == worker {
			return true
		}
		l.close()
		return false
	})
	return l
}

// portOf returns the port of an address.
func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	streamstory "github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
)

var (
	migrationRounds  = flag.Int("migration", 1, "how often TestMigration injects each fault")
	migrationStreams = flag.Int("migration-streams", 30, "number of `streams` that run during a fault")
	migrationTable   = flag.String("migration-table", "", "append the table of TestMigration to this `file`")
)

// A strike is a fault of a worker under a crowd of streams.
type strike struct {
	name      string
	hit, mend func(*process, *testing.T)
	restart   bool // the fault ends the process

	streams, failed, different, moved int
	gaps                              []time.Duration // the longest gap of each moved stream
}

// A passage is a client's view of one stream.
type passage struct {
	id     string
	result streamResult
	gap    time.Duration // the longest between two events with text
	err    error
}

// pass reads a stream to its end.
func (l *live) pass() (p passage) {
	p.id = l.id
	last, had := time.Now(), l.text.Len()
	for p.err == nil {
		if _, p.err = l.next(); l.text.Len() > had {
			now := time.Now()
			p.gap = max(p.gap, now.Sub(last))
			last, had = now, l.text.Len()
		}
	}
	if l.done && l.err == nil && l.usage != nil {
		p.result, p.err = streamResult{l.text.String(), l.finish, *l.usage}, nil
	} else if l.err != nil {
		p.err = fmt.Errorf("%s: %s", l.err.reason(), l.err.Message)
	}
	return p
}

// passages reads streams of all kinds concurrently, and calls midway when each has begun.
func (w *fleet) passages(t *testing.T, n int, midway func()) []passage {
	t.Helper()
	all := make([]*live, n)
	var opened sync.WaitGroup
	for i := range all {
		opened.Go(func() { all[i] = w.open(t, usageOf(varied(i))).begun(t) })
	}
	opened.Wait()
	if t.Failed() {
		t.FailNow()
	}
	read := make([]passage, n)
	var done sync.WaitGroup
	for i, l := range all {
		done.Go(func() { read[i] = l.pass() })
	}
	midway()
	done.Wait()
	return read
}

// TestMigration repeatedly injects faults into one of three workers under many streams. No stream
// may fail, and each must have its undisturbed text, finish reason and usage. `scripts/fleet
// migration` repeats it more often.
func TestMigration(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	n := *migrationStreams
	places := fmt.Sprint(n)
	w := runFleet(t, 3, flags{
		chat:   []string{"--migrate-after", "1s"},
		worker: []string{"--pace", "20", "--drain", "100ms", "--max-running", places, "--kv-tokens", fmt.Sprint(n * 256)},
	})
	var want []streamResult
	for _, p := range w.passages(t, n, func() {}) {
		if p.err != nil {
			t.Fatalf("undisturbed: %v", p.err)
		}
		want = append(want, p.result)
	}
	strikes := []*strike{
		{name: "kill -9", hit: (*process).kill, mend: untouched, restart: true},
		{name: "SIGSTOP", hit: (*process).freeze, mend: (*process).thaw},
		{name: "drain", hit: (*process).terminate, mend: func(p *process, t *testing.T) { p.exit(t) }, restart: true},
	}
	for range *migrationRounds {
		for _, s := range strikes {
			victim := rand.IntN(len(w.workers))
			read := w.passages(t, n, func() {
				lab.Pause(t.Context(), rand.N(500*time.Millisecond)) // at a random point of the answers
				s.hit(w.workers[victim], t)
			})
			s.mend(w.workers[victim], t)
			if s.restart {
				w.workers[victim].relaunch(t)
			}
			w.awaitReports(t, time.Now())
			s.judge(t, w, read, want)
		}
	}
	for _, s := range strikes {
		if s.moved == 0 {
			t.Errorf("%s: no stream moved", s.name)
		}
	}
	appendTable(t, *migrationTable, strikeTable(strikes, *migrationRounds))
}

// awaitReports waits until every worker is used and has reported its load since a time.
func (w *fleet) awaitReports(t *testing.T, since time.Time) {
	t.Helper()
	polltest.Eventually(t, "all workers are used again", func() bool {
		resp, err := w.http.Get(w.url("/v1/workers"))
		if err != nil {
			t.Fatal(err)
		}
		var all struct{ Workers []streamstory.Worker }
		if r := readAll(t, resp); json.Unmarshal(r.body, &all) != nil {
			t.Fatalf("%d: %s", r.status, r.body)
		}
		for _, worker := range all.Workers {
			said, err := time.Parse(time.RFC3339Nano, worker.Said)
			if worker.State != "healthy" || err != nil || said.Before(since) {
				return false
			}
		}
		return true
	})
}

// judge compares the answers with the undisturbed ones.
func (s *strike) judge(t *testing.T, w *fleet, read []passage, want []streamResult) {
	t.Helper()
	for i, p := range read {
		s.streams++
		switch {
		case p.err != nil:
			s.failed++
			t.Errorf("%s: stream %s failed: %v", s.name, p.id, p.err)
			continue
		case p.result != want[i]:
			s.different++
			t.Errorf("%s: stream %s: %+v, undisturbed %+v", s.name, p.id, p.result, want[i])
		}
		if n := len(moves(w.why(t, p.id))); n > 0 {
			s.moved += n
			s.gaps = append(s.gaps, p.gap)
		}
	}
}

func strikeTable(strikes []*strike, rounds int) string {
	var b strings.Builder
	b.WriteString("| fault | times | streams | moves | failed | different | longest pause of a stream that moved, p50 | p99 |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range strikes {
		slices.Sort(s.gaps)
		at := func(q float64) time.Duration {
			if len(s.gaps) == 0 {
				return 0
			}
			return s.gaps[int(q*float64(len(s.gaps)-1))].Round(time.Millisecond)
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %v | %v |\n", s.name, rounds, s.streams, s.moved, s.failed, s.different, at(0.5), at(0.99))
	}
	return b.String()
}

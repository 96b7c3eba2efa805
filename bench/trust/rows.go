package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/bench/wire"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A row is one fault of the table.
type row struct {
	name   string
	layout layout
	kept   bool // the streams are kept in Redis and read at another edge
	redis  bool // the api-services have Redis, and no stream is kept
	keyed  bool // the streams are of one tenant, beside another one with a limit
	tokens int  // of each stream
	// play injects the fault while the streams of s run, and returns the figures of the row. common
	// adds the figures that every row has.
	play func(ctx context.Context, s *stand) ([]finding, error)
	// spared means that every stream must complete.
	spared bool
}

// rows lists the faults, with the bounds of docs/explanation/reliability.md.
var rows = []row{
	{name: "clients leave", layout: layout{workers: 1, chats: 1, edges: 1, worker: []string{"--log-level", "info", "--log-json"}}, tokens: 400, play: clientsLeave},
	{name: "worker killed, another is there", layout: layout{workers: 2, chats: 1, edges: 1}, tokens: 200, spared: true, play: workerDies},
	{name: "worker killed, none is left", layout: layout{workers: 1, chats: 1, edges: 1}, tokens: 200, play: lastWorkerKilled},
	{name: "worker frozen, another is there", layout: layout{workers: 2, chats: 1, edges: 1}, tokens: 400, spared: true, play: func(_ context.Context, s *stand) ([]finding, error) {
		return s.strike(s.workers[0], syscall.SIGSTOP, 5*time.Second)
	}},
	{name: "chat-service killed, another is there", layout: layout{workers: 1, chats: 2, edges: 1}, tokens: 200, spared: true, play: func(_ context.Context, s *stand) ([]finding, error) {
		return s.strike(s.chats[0], syscall.SIGKILL, 500*time.Millisecond)
	}},
	{name: "chat-service frozen, another is there", layout: layout{workers: 1, chats: 2, edges: 1}, tokens: 400, spared: true, play: func(_ context.Context, s *stand) ([]finding, error) {
		return s.strike(s.chats[0], syscall.SIGSTOP, 5*time.Second)
	}},
	{name: "api-service killed", layout: layout{workers: 1, chats: 1, edges: 1, worker: []string{"--log-level", "info", "--log-json"}}, tokens: 200, play: edgeKilled},
	{name: "api-service killed, its streams are kept", layout: layout{workers: 1, chats: 1, edges: 2}, kept: true, tokens: 500, spared: true, play: takenOver},
	partitioned("packets to a worker are dropped, another is there", workerHop, (*wire.Wire).Drop, 10*time.Second),
	partitioned("connections to a worker are rejected, another is there", workerHop, (*wire.Wire).Reject, 500*time.Millisecond),
	partitioned("packets to a chat-service are dropped, another is there", chatHop, (*wire.Wire).Drop, 10*time.Second),
	partitioned("connections to a chat-service are rejected, another is there", chatHop, (*wire.Wire).Reject, 500*time.Millisecond),
	{name: "worker drains, another is there", layout: layout{workers: 2, chats: 1, edges: 1, worker: []string{"--drain", "1s"}}, tokens: 200, spared: true, play: func(_ context.Context, s *stand) ([]finding, error) {
		return s.drain(s.workers[0], time.Second)
	}},
	{name: "chat-service drains, another is there", layout: layout{workers: 1, chats: 2, edges: 1, chat: []string{"--drain", "1s"}}, tokens: 200, spared: true, play: func(_ context.Context, s *stand) ([]finding, error) {
		return s.drain(s.chats[0], time.Second)
	}},
	{name: "api-service gets a second signal", layout: layout{workers: 1, chats: 1, edges: 1}, tokens: 200, play: secondSignal(edgesOf)},
	{name: "chat-service gets a second signal", layout: layout{workers: 1, chats: 1, edges: 1}, tokens: 200, play: secondSignal(chatsOf)},
	{name: "worker gets a second signal", layout: layout{workers: 1, chats: 1, edges: 1}, tokens: 200, play: secondSignal(workersOf)},
	{name: "workers restart, one after another", layout: layout{workers: 2, chats: 1, edges: 1, worker: []string{"--drain", "1s"}}, tokens: 400, spared: true, play: rolled(workersOf)},
	{name: "chat-services restart, one after another", layout: layout{workers: 1, chats: 2, edges: 1, chat: []string{"--drain", "1s"}}, tokens: 400, spared: true, play: rolled(chatsOf)},
	{name: "one tenant sends five times its limit", layout: layout{workers: 1, chats: 1, edges: 1}, keyed: true, tokens: 600, spared: true, play: overloaded},
	{name: "Redis is frozen", layout: layout{workers: 1, chats: 1, edges: 1}, redis: true, tokens: 400, spared: true, play: redisAway(syscall.SIGSTOP)},
	{name: "Redis is killed", layout: layout{workers: 1, chats: 1, edges: 1}, redis: true, tokens: 400, spared: true, play: redisAway(syscall.SIGKILL)},
	{name: "ten times as many requests are opened and aborted in 10 s", layout: layout{workers: 1, chats: 1, edges: 1}, play: openAndAbort},
}

// play starts the services of a row, injects its fault, and stops the services.
func (s *stand) play(ctx context.Context, r row) (all []finding, err error) {
	defer s.end()
	l := r.layout
	if r.kept || r.redis {
		url, err := s.redis()
		if err != nil {
			return nil, err
		}
		l.edge = append(slices.Clone(l.edge), "--redis", url, "--token-key", "trust")
	}
	if r.keyed {
		file, err := s.limits()
		if err != nil {
			return nil, err
		}
		s.key = "others"
		l.edge = append(slices.Clone(l.edge), "--keys", file)
	}
	if err := s.start(ctx, l); err != nil {
		return nil, err
	}
	if r.tokens > 0 {
		if err := s.fill(ctx, r); err != nil {
			return nil, err
		}
	}
	if err := s.allRun(); err != nil {
		return nil, err
	}
	all, err = r.play(ctx, s)
	if err != nil {
		return nil, err
	}
	all = append(all, s.common(ctx, r)...)
	for i := range all {
		all[i].Row = r.name
	}
	return all, nil
}

// common returns the figures that every row has.
func (s *stand) common(ctx context.Context, r row) []finding {
	s.finish()
	hangs, untold, wrong, broken := 0, 0, 0, 0
	for _, one := range s.readers {
		if one.ending == left { // finish made the reader leave, here or in the row
			hangs++
		}
		if one.ending == cut && (r.kept || !s.dead(s.edges[0])) {
			untold++
		}
		if one.wrong() {
			wrong++
		}
		if r.spared && one.ending != completed {
			broken++
			if broken == 1 {
				fmt.Fprintf(os.Stderr, "%s: a stream ends with %v\n", r.name, one.err)
			}
		}
	}
	all := []finding{
		{What: "streams that hang", Got: float64(hangs)}, {What: "streams that end without an ending", Got: float64(untold)},
		{What: "streams with lost or doubled text", Got: float64(wrong)},
	}
	if r.spared {
		all = append(all, finding{What: "streams that fail", Got: float64(broken)})
	}
	for _, p := range s.frozen() {
		_ = p.Signal(syscall.SIGCONT)
	}
	return append(all, finding{What: "live streams 5 s afterwards", Got: s.remaining(ctx)})
}

// remaining returns the number of streams that the services still count as live, after at most 5 s.
func (s *stand) remaining(ctx context.Context) (live float64) {
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		live = 0
		for _, p := range s.alive() {
			n, err := s.scrape(ctx, p, "whence_streams_live{")
			if err != nil {
				n = 1 // the service does not answer
			}
			live += n
		}
		if live == 0 || time.Now().After(until) {
			return live
		}
	}
}

func (s *stand) dead(p *service) bool { return !slices.Contains(s.alive(), p) }

// frozen returns the stopped processes.
func (s *stand) frozen() (all []*service) {
	for _, p := range s.alive() {
		if p.Stopped() {
			all = append(all, p)
		}
	}
	return all
}

// strike sends a signal to a service and measures the longest pause of a stream. All streams
// continue.
func (s *stand) strike(p *service, signal syscall.Signal, bound time.Duration) ([]finding, error) {
	if err := p.Signal(signal); err != nil {
		return nil, err
	}
	s.finish()
	return []finding{{What: "longest pause of a stream", Unit: report.Millis, Got: inMillis(s.longest()), Bound: inMillis(bound)}}, nil
}

// longest returns the longest pause of a stream.
func (s *stand) longest() (gap time.Duration) {
	for _, r := range s.readers {
		gap = max(gap, r.gap)
	}
	return gap
}

func inMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// drain sends SIGTERM to a service and measures the time until it has ended.
func (s *stand) drain(p *service, grace time.Duration) ([]finding, error) {
	at := time.Now()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	select {
	case <-p.Exited():
	case <-time.After(within):
	}
	took := time.Since(at)
	s.finish()
	return []finding{
		{What: "time until the process has ended", Unit: report.Millis, Got: inMillis(took), Bound: inMillis(grace + time.Second)},
		{What: "longest pause of a stream", Unit: report.Millis, Got: inMillis(s.longest()), Bound: 500},
	}, nil
}

// stops reads from the worker's log when each stream stopped, and how many tokens it had generated.
func (s *stand) stops() map[string]stop {
	all := map[string]stop{}
	for line := range strings.Lines(s.workers[0].Output()) {
		if m := ended.FindStringSubmatch(line); m != nil {
			at, _ := time.Parse(time.RFC3339Nano, m[1])
			tokens := 0
			if n := generated.FindStringSubmatch(line); n != nil {
				tokens, _ = strconv.Atoi(n[1])
			}
			all[m[2]] = stop{at, tokens}
		}
	}
	return all
}

type stop struct {
	at     time.Time
	tokens int
}

var (
	ended     = regexp.MustCompile(`"time":"([^"]+)".*"msg":"stream ended","stream":"([^"]+)"`)
	generated = regexp.MustCompile(`"completion_tokens":(\d+)`)
)

// clientsLeave opens additional streams, one after another, whose clients leave as soon as they
// have text. There are a fifth as many as streams that continue, and at most 100, so that all have
// left while the other streams run.
func clientsLeave(ctx context.Context, s *stand) ([]finding, error) {
	n := min(max(1, s.streams/5), 100)
	type departure struct {
		r  *reader
		at time.Time
	}
	var leavers []*departure
	for range n {
		reading, leave := context.WithCancel(ctx)
		d := &departure{r: &reader{id: fmt.Sprint("leaves-", len(leavers)), want: s.want}}
		flowing := make(chan struct{})
		d.r.flows = func() { close(flowing) }
		s.reading.Go(func() { d.r.read(reading, s.http, s.edges[0].addr, s.tokens) })
		select {
		case <-flowing:
		case <-time.After(within):
			leave()
			return nil, fmt.Errorf("%s received no text within %v", d.r.id, within)
		}
		time.Sleep(10 * time.Millisecond)
		d.at = time.Now()
		leave()
		leavers = append(leavers, d)
	}
	if err := s.allRun(); err != nil {
		return nil, err
	}
	if err := s.await(ctx, "the engine has stopped all that were left", func() bool {
		stops := s.stops()
		return !slices.ContainsFunc(leavers, func(d *departure) bool { return stops[d.r.id].at.IsZero() })
	}); err != nil {
		return nil, err
	}
	stops := s.stops()
	var took []time.Duration
	for _, d := range leavers {
		took = append(took, max(0, stops[d.r.id].at.Sub(d.at)))
	}
	slices.Sort(took)
	return []finding{{What: "client leaves until the engine has stopped, p99", Unit: report.Millis, Got: inMillis(took[len(took)*99/100]), Bound: 100}}, nil
}

// lastWorkerKilled kills the only worker and restarts it.
func lastWorkerKilled(ctx context.Context, s *stand) ([]finding, error) {
	at := time.Now()
	if err := s.workers[0].Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	s.finish()
	told := time.Duration(0)
	for _, r := range s.readers {
		told = max(told, r.over.Sub(at))
	}
	probing, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	asked := &reader{}
	asked.read(probing, s.http, s.edges[0].addr, 1)
	refusal := asked.over.Sub(asked.asked)
	if asked.ending != refused || asked.err.Reason != streamerr.Unavailable {
		return nil, fmt.Errorf("without a worker, a request has the ending %d and the error %s", asked.ending, fmt.Sprint(asked.err))
	}
	if err := s.launch(s.workers[0]); err != nil {
		return nil, err
	}
	back := time.Now()
	if err := s.await(ctx, "the service serves again", func() bool {
		again := &reader{}
		again.read(probing, s.http, s.edges[0].addr, 1)
		return again.ending == completed
	}); err != nil {
		return nil, err
	}
	return []finding{
		{What: "death until the last client is told", Unit: report.Millis, Got: inMillis(told), Bound: 500},
		{What: "a new request until its 503", Unit: report.Millis, Got: inMillis(refusal), Bound: 100},
		{What: "the worker is back until a request is served", Unit: report.Millis, Got: inMillis(time.Since(back)), Bound: 1000},
	}, nil
}

// edgeKilled kills the only api-service.
func edgeKilled(ctx context.Context, s *stand) ([]finding, error) {
	at := time.Now()
	if err := s.edges[0].Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	s.finish()
	var last time.Duration
	err := s.await(ctx, "the engine has stopped all streams", func() bool {
		stops := s.stops()
		last = 0
		for _, r := range s.readers {
			stopped := stops[r.id].at
			if stopped.IsZero() {
				return false
			}
			last = max(last, stopped.Sub(at))
		}
		return true
	})
	return []finding{{What: "death until the engine has stopped the last stream", Unit: report.Millis, Got: inMillis(last), Bound: 250}}, err
}

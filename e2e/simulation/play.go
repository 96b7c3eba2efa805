// Package simulation runs seeded schedules of requests and faults against the whole path in one
// process and in virtual time: api-service, one or two chat-services, and two llm-workers.
//
// A Schedule is drawn from a seed (package schedule). Play builds the services inside a bubble of
// testing/synctest (package world), on in-memory transports (packages network and client), runs the
// schedule, and returns the violated invariants (package check).
package simulation

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/whence-dev/whence/e2e/simulation/check"
	"github.com/whence-dev/whence/e2e/simulation/client"
	"github.com/whence-dev/whence/e2e/simulation/schedule"
	"github.com/whence-dev/whence/e2e/simulation/world"
)

const (
	// ready is the time for the services to find each other before the first request: a worker is
	// probed twice, over slow connections.
	ready = 300 * time.Millisecond
	// horizon is the time by which every stream must have ended: it is longer than the sum of all
	// timers on the path.
	horizon = 2 * time.Minute
)

// A Result is the outcome of a schedule.
type Result struct {
	// Violations are the violated invariants.
	Violations []string
	// Journal has the logs of all processes, with virtual times.
	Journal *world.Journal
	// Endings counts the endings of streams at api-service by reason.
	Endings map[string]int
	// Moves counts the moves of streams between workers and between chat-services.
	Moves int
	// Answers are the answers to the requests, in order.
	Answers []client.Answer
}

// Play runs a schedule in a bubble of testing/synctest, and leaves no goroutine in the bubble.
// wants are the undisturbed answers, by request; nil for no comparison.
func Play(s *schedule.Schedule, wants []client.Answer) (result Result) {
	w, err := world.Start(s)
	if err != nil {
		result.Violations = []string{err.Error()}
		return result
	}
	time.Sleep(ready)
	p := &play{World: w, streams: make([]check.Stream, len(s.Requests)), visits: make([]*client.Visit, len(s.Requests))}
	w.Journal.Begin(time.Now())
	w.Net.OnMessage(p.message)
	p.run()
	c := check.New(w, wants)
	for i, v := range p.visits {
		select {
		case <-v.Over():
		default:
			c.Fail("the client of %s has no answer after %v", s.Name(i), horizon)
			v.Leave()
		}
		p.streams[i].Answer = v.Answer()
		result.Answers = append(result.Answers, v.Answer())
	}
	c.Quiet()
	p.audit()
	c.Streams(p.streams, p.struck())
	c.Strangers(p.strange)
	w.Stop()
	c.Closed()
	result.Violations, result.Journal, result.Endings, result.Moves = c.Violations, w.Journal, c.Endings, c.Moves
	return result
}

// A play runs one schedule.
type play struct {
	*world.World

	mu      sync.Mutex // guards the following fields
	streams []check.Stream
	visits  []*client.Visit
	strikes []*check.Strike
	strange []check.Stranger
	readers sync.WaitGroup
}

func (p *play) run() {
	s := p.Schedule
	done := make(chan struct{})
	pending := 0
	at := func(d time.Duration, do func()) {
		pending++
		time.AfterFunc(d, func() { do(); done <- struct{}{} })
	}
	for i := range s.Requests {
		at(s.Requests[i].At, func() { p.request(i) })
	}
	for i := range s.Strangers {
		at(s.Strangers[i].At, func() { p.readers.Go(func() { p.stranger(&s.Strangers[i]) }) })
	}
	for i := range s.Faults {
		if f := &s.Faults[i]; f.Message == 0 {
			at(f.At, func() { p.strike(f) })
		}
	}
	for range pending {
		<-done
	}
	over := time.NewTimer(horizon)
	defer over.Stop()
	for _, v := range p.visits {
		select {
		case <-v.Over():
		case <-over.C:
			return
		}
	}
	p.readers.Wait()
	for until := time.Now().Add(horizon); p.Edge.Hop.Live.Len() > 0 && time.Now().Before(until); { // streams without readers
		time.Sleep(50 * time.Millisecond)
	}
}

// message injects the faults of a message.
func (p *play) message(n int) {
	for i := range p.Schedule.Faults {
		if f := &p.Schedule.Faults[i]; f.Message == n {
			time.AfterFunc(f.After, func() { p.strike(f) })
		}
	}
}

// request sends a client's request.
func (p *play) request(i int) {
	r := &p.Schedule.Requests[i]
	body := map[string]any{
		"model": "whence-tiny", "temperature": 0, "max_tokens": r.Tokens,
		"messages": []map[string]string{{"role": "user", "content": schedule.Prompts[r.Prompt]}},
	}
	if !r.Kept {
		body["stream"] = !r.Whole
	}
	if !r.Whole && !r.Kept {
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	if r.Stop {
		body["stop"] = []string{"e"}
	}
	if r.N > 1 {
		body["n"] = r.N
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // cannot fail: the map above
	}
	q := &client.Request{Method: "POST", Path: "/v1/chat/completions", Body: string(b), Window: r.Window, Pace: r.Pace, Ahead: r.Ahead, Follows: r.Follows, HTTP2: r.HTTP2, Chunked: r.Chunked, Expects: r.Expects, Header: map[string]string{}}
	if r.Kept {
		q.Path = "/v1/streams"
	} else {
		q.Header["X-Request-Id"] = p.Schedule.Name(i)
	}
	if r.Deadline > 0 {
		q.Header["X-Request-Timeout"] = fmt.Sprint(r.Deadline.Seconds())
	}
	if r.Leave != "" {
		q.Header["X-Leave"] = r.Leave
	}
	p.Journal.Note("client %s asks", p.Schedule.Name(i))
	p.mu.Lock()
	defer p.mu.Unlock()
	v := (*client.Visit)(nil)
	if r.Line == i {
		v = p.Visit(q)
	} else {
		v = p.visits[i-1].Visit(q) // on the same connection
	}
	p.visits[i] = v
	p.streams[i].Asked = time.Now()
	if !r.Kept {
		p.streams[i].ID = p.Schedule.Name(i)
	}
	p.streams[i].Readers = make([][]client.Answer, len(r.Readers))
	p.readers.Go(func() { p.read(i, v) })
}

// stranger runs a stranger.
func (p *play) stranger(s *schedule.Stranger) {
	answers := p.Stranger(s)
	p.Journal.Note("a stranger that sends %s gets %v", schedule.Strange[s.Which].Name, answers)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strange = append(p.strange, check.Stranger{Stranger: s, Answers: answers, Ended: time.Now()})
}

// id returns the id of a stream, or "" if it is not known yet.
func (p *play) id(i int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.streams[i].ID
}

func (p *play) visitOf(i int) *client.Visit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.visits[i]
}

// ask sends a request about a stream and returns the answer.
func (p *play) ask(r *client.Request) client.Answer {
	a := p.Visit(r).Answer()
	p.Journal.Note("%s %s: %d %s", r.Method, r.Path, a.Status, strings.TrimSpace(a.Body))
	return a
}

// struck returns copies of the faults that were injected so far: a DELETE that was sent last can still
// be answered while they are checked.
func (p *play) struck() []check.Strike {
	p.mu.Lock()
	defer p.mu.Unlock()
	strikes := make([]check.Strike, len(p.strikes))
	for i, s := range p.strikes {
		strikes[i] = *s
	}
	return strikes
}

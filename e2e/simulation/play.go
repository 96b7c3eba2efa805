package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/whence-dev/whence/e2e/simulation/client"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

const (
	// ready is how long services have to find each other before the first request, settle how long they have to forget all
	// streams after the last one.
	ready  = 100 * time.Millisecond
	settle = 5 * time.Second
	// horizon is when every stream must have ended: it is longer than all timers on its way together.
	horizon = 2 * time.Minute
	// slowest is the most that a slow link adds to a message, deafest the longest deafness of an engine.
	slowest = 50 * time.Millisecond
	deafest = 3 * time.Second
)

// A Result is what came of a schedule.
type Result struct {
	// Violations are the invariants that do not hold.
	Violations []string
	// Journal is what all processes logged, with virtual times.
	Journal string
	// Endings counts the endings of streams at api-service by reason.
	Endings map[string]int
	// Moves counts the moves of streams between workers and between chat-services.
	Moves int
}

// Play plays a schedule. It runs in a bubble of testing/synctest, which it leaves without a goroutine. wants are the
// undisturbed answers, by request; nil for no comparison.
func Play(s *Schedule, wants []client.Answer) (result Result, answers []client.Answer) {
	w, err := start(s)
	if err != nil {
		result.Violations = []string{err.Error()}
		return result, nil
	}
	time.Sleep(ready)
	p := &play{world: w, visits: make([]*client.Visit, len(s.Requests))}
	w.journal.begin(time.Now())
	w.net.OnMessage(p.message)
	p.run()
	c := &check{world: w, visits: p.visits, wants: wants}
	for _, v := range p.visits {
		select {
		case <-v.Over():
			answers = append(answers, v.Answer())
		default:
			c.fail("a client has no answer after %v", horizon)
			v.Leave()
			answers = append(answers, v.Answer())
		}
	}
	c.quiet()
	c.streams()
	w.stop()
	c.closed()
	result = Result{Violations: c.violations, Journal: w.journal.String(), Endings: c.endings, Moves: c.moves}
	return result, answers
}

// A play carries a schedule out.
type play struct {
	*world
	visits []*client.Visit
}

func (p *play) run() {
	s := p.schedule
	done := make(chan struct{})
	pending := 0
	at := func(d time.Duration, do func()) {
		pending++
		time.AfterFunc(d, func() { do(); done <- struct{}{} })
	}
	for i := range s.Requests {
		at(s.Requests[i].At, func() { p.request(i) })
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
}

// message strikes with the faults of a message.
func (p *play) message(n int) {
	for i := range p.schedule.Faults {
		if f := &p.schedule.Faults[i]; f.Message == n {
			time.AfterFunc(f.After, func() { p.strike(f) })
		}
	}
}

// request sends a client's request.
func (p *play) request(i int) {
	r := &p.schedule.Requests[i]
	body := map[string]any{
		"model": "whence-tiny", "temperature": 0, "max_tokens": r.Tokens, "stream": !r.Whole,
		"messages": []map[string]string{{"role": "user", "content": prompts[r.Prompt]}},
	}
	if !r.Whole {
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
		panic(err) // the map above
	}
	q := &client.Request{
		Method: "POST", Path: "/v1/chat/completions", Body: string(b), Window: r.Window, Pace: r.Pace,
		Header: map[string]string{"X-Request-Id": p.schedule.Name(i)},
	}
	if r.Deadline > 0 {
		q.Header["X-Request-Timeout"] = fmt.Sprint(r.Deadline.Seconds())
	}
	p.journal.note("client %s asks", p.schedule.Name(i))
	p.mu.Lock()
	p.visits[i] = p.visit(q)
	p.mu.Unlock()
}

func (p *play) visitOf(i int) *client.Visit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.visits[i]
}

// strike does what a fault says.
func (p *play) strike(f *Fault) {
	p.mu.Lock()
	closing := p.closing
	p.mu.Unlock()
	if closing {
		return
	}
	p.journal.note("FAULT %s (stream s%d, chat-service %d, llm-worker %d, for %v, %d messages)", names[f.Kind], f.Stream, f.Chat, f.Worker, f.For, f.N)
	chat, worker := chatAddr(f.Chat), workerAddr(f.Worker)
	switch f.Kind {
	case CutChat:
		p.net.Cut(edgeAddr, chat)
	case CutWorker:
		p.net.Cut(chat, worker)
	case CutChatAfter:
		p.net.CutAfter(edgeAddr, chat, f.N)
	case CutWorkerAfter:
		p.net.CutAfter(chat, worker, f.N)
	case StallChat:
		p.net.Stall(edgeAddr, chat, f.For)
	case StallWorker:
		p.net.Stall(chat, worker, f.For)
	case SlowChat:
		p.net.Slow(edgeAddr, chat, min(f.For, slowest))
	case SlowWorker:
		p.net.Slow(chat, worker, min(f.For, slowest))
	case KillWorker, DrainWorker:
		p.end(f, p.worker(f.Worker).process, f.Kind == KillWorker, func() { p.startWorker(f.Worker) })
	case KillChat, DrainChat:
		p.end(f, p.chat(f.Chat).process, f.Kind == KillChat, func() {
			if err := p.startChat(f.Chat); err != nil {
				p.journal.note("chat-service does not start: %v", err)
			}
		})
	case DrainEdge:
		p.edge.drain()
	case HurryEdge:
		p.edge.drain()
		p.edge.order.Hurry()
	case EngineFails, EngineHangs, EngineIsDeaf, EnginePanics:
		now := time.Now()
		p.worker(f.Worker).fault.Store(&engineFault{kind: f.Kind, until: now.Add(20 * time.Millisecond), lasts: f.For})
	case ClientLeaves:
		if v := p.visitOf(f.Stream); v != nil {
			v.Leave()
		}
	case ClientStalls:
		if v := p.visitOf(f.Stream); v != nil {
			v.Stall(f.For)
		}
	case DeleteStream:
		r := &client.Request{Method: "DELETE", Path: "/v1/streams/" + p.schedule.Name(f.Stream), Window: 64 << 10}
		v := p.visit(r)
		p.running.Go(func() {
			a := v.Answer()
			p.journal.note("DELETE of %s: %d %s", p.schedule.Name(f.Stream), a.Status, strings.TrimSpace(a.Body))
		})
	case StopAtChat:
		p.running.Go(func() { p.stopAt(chat, f) })
	case kinds:
	case StopAtWorker:
		p.running.Go(func() { p.stopAt(worker, f) })
	}
}

// stopAt is an operator's unary Stop.
func (p *play) stopAt(addr string, f *Fault) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	stop := &streamv1.StopStreamRequest{StreamId: p.schedule.Name(f.Stream)}
	cc := p.operator.Dial(addr)
	defer cc.Close() //nolint:errcheck // never fails
	var err error
	if f.Kind == StopAtChat {
		_, err = chatv1.NewChatClient(cc).Stop(ctx, &chatv1.StopRequest{Stream: stop})
	} else {
		_, err = workerv1.NewWorkerClient(cc).Stop(ctx, &workerv1.StopRequest{Stream: stop})
	}
	p.journal.note("unary Stop of %s at %s: %v", p.schedule.Name(f.Stream), addr, err)
}

// end kills or drains a process, and starts another one in its place when the fault is over.
func (p *play) end(f *Fault, old *process, kill bool, restart func()) {
	select {
	case <-old.ended:
		return
	default:
	}
	if kill {
		old.kill()
	} else {
		old.drain()
	}
	if f.For >= 10*time.Second { // for good
		return
	}
	if old.replaced.Swap(true) {
		return
	}
	p.running.Go(func() {
		time.Sleep(f.For)
		<-old.ended
		p.mu.Lock()
		closing := p.closing
		p.mu.Unlock()
		if !closing {
			p.journal.note("%s starts again", old.name)
			restart()
		}
	})
}

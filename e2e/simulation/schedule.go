package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A Schedule is all that happens to the path from outside: the requests of clients, and faults.
type Schedule struct {
	Seed     uint64
	Chats    int           // chat-services
	MaxDelay time.Duration // of one message
	Queue    bool          // streams wait in chat-service for a worker that has room
	Requests []Request
	Faults   []Fault
}

// A Request is one client's.
type Request struct {
	At       time.Duration
	Prompt   int // of prompts
	Tokens   int // max_tokens
	Whole    bool
	Stop     bool // with a stop string
	N        int  // choices
	Window   int  // bytes of the client's buffer
	Pace     time.Duration
	Deadline time.Duration // 0 for none
}

// A Kind is what a fault does.
type Kind int

// The kinds of faults.
const (
	CutChat Kind = iota
	CutWorker
	CutChatAfter
	CutWorkerAfter
	StallChat
	StallWorker
	SlowChat
	SlowWorker
	KillWorker
	KillChat
	DrainWorker
	DrainChat
	DrainEdge
	HurryEdge
	EngineFails
	EngineHangs
	EngineIsDeaf
	EnginePanics
	ClientLeaves
	ClientStalls
	DeleteStream
	StopAtChat
	StopAtWorker
	kinds
)

var names = [kinds]string{
	"cut api-service>chat-service", "cut chat-service>llm-worker", "cut api-service>chat-service in place of a message",
	"cut chat-service>llm-worker in place of a message", "stall api-service>chat-service", "stall chat-service>llm-worker",
	"slow down api-service>chat-service", "slow down chat-service>llm-worker", "kill llm-worker", "kill chat-service", "drain llm-worker",
	"drain chat-service", "drain api-service", "second signal to api-service", "engine fails", "engine hangs", "engine is deaf",
	"engine panics", "client leaves", "client stops reading", "DELETE", "unary Stop at chat-service", "unary Stop at llm-worker",
}

// A Fault happens at a time, or with a message.
type Fault struct {
	At      time.Duration // if Message is 0
	Message int           // the number of a message between services, counted from 1
	After   time.Duration // the time from Message to the fault
	Kind    Kind
	Stream  int // of Requests
	Chat    int
	Worker  int
	For     time.Duration // how long it lasts; 0 is for good
	N       int           // messages, for a cut in place of a message
}

// Name returns the name of a stream.
func (s *Schedule) Name(stream int) string { return fmt.Sprintf("s%d", stream) }

var prompts = []string{"What happens when I close the tab?", "Name a bird.", "Say it again, and then once more, slowly and in other words."}

// weights say how often a kind is drawn.
var weights = [kinds]int{
	CutChat: 3, CutWorker: 4, CutChatAfter: 3, CutWorkerAfter: 5, StallChat: 2, StallWorker: 3, SlowChat: 1, SlowWorker: 1,
	KillWorker: 4, KillChat: 3, DrainWorker: 3, DrainChat: 2, DrainEdge: 1, HurryEdge: 1, EngineFails: 3, EngineHangs: 3, EngineIsDeaf: 1,
	EnginePanics: 1, ClientLeaves: 5, ClientStalls: 3, DeleteStream: 5, StopAtChat: 2, StopAtWorker: 2,
}

// New draws the schedule of a seed.
func New(seed uint64) *Schedule {
	r := rand.New(rand.NewPCG(seed, 0x77686e63))
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(r.Int64N(int64(most-least)))
	}
	s := &Schedule{Seed: seed, Chats: pick(1, 2, 2), MaxDelay: time.Duration(pick(2, 10, 40)) * time.Millisecond, Queue: r.IntN(4) == 0}
	for range pick(1, 1, 1, 2, 3) {
		q := Request{
			At: between(0, 60*time.Millisecond), Prompt: r.IntN(len(prompts)), Tokens: pick(1, 2, 5, 12, 25), Whole: r.IntN(4) == 0,
			Stop: r.IntN(5) == 0, N: pick(1, 1, 1, 1, 1, 1, 2), Window: pick(1<<10, 4<<10, 64<<10),
		}
		if r.IntN(8) == 0 {
			q.Pace = between(time.Millisecond, 60*time.Millisecond)
		}
		if r.IntN(6) == 0 {
			q.Deadline = between(5*time.Millisecond, 600*time.Millisecond)
		}
		s.Requests = append(s.Requests, q)
	}
	s.Requests[0].At = 0
	total := 0
	for _, w := range weights {
		total += w
	}
	for range pick(0, 1, 1, 2, 2, 2, 3, 4) {
		draw, kind := r.IntN(total), Kind(0)
		for draw >= weights[kind] {
			draw -= weights[kind]
			kind++
		}
		f := Fault{
			Kind: kind, Stream: r.IntN(len(s.Requests)), Chat: r.IntN(s.Chats), Worker: r.IntN(Workers), N: 1 + r.IntN(12),
			For: []time.Duration{between(time.Millisecond, 30*time.Millisecond), between(30*time.Millisecond, time.Second), between(time.Second, 4*time.Second), 40 * time.Second}[r.IntN(4)],
		}
		if r.IntN(2) == 0 {
			f.At = between(0, time.Duration(pick(20, 80, 250, 600))*time.Millisecond)
		} else {
			f.Message, f.After = 1+r.IntN(pick(6, 15, 40, 80)), time.Duration(r.Int64N(1000))
			if r.IntN(3) == 0 {
				f.After = between(0, 5*time.Millisecond)
			}
		}
		s.Faults = append(s.Faults, f)
	}
	if n := len(s.Faults); n > 1 && r.IntN(2) == 0 { // a double fault
		f := &s.Faults[n-1]
		f.At, f.Message, f.After = s.Faults[0].At, s.Faults[0].Message, s.Faults[0].After+between(0, 3*time.Millisecond)
		if f.Message == 0 {
			f.At += f.After
		}
	}
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	return s
}

// String lists the schedule, one event a line.
func (s *Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d chat-services, %d llm-workers, messages take up to %v, queue in chat-service %t\n", s.Seed, s.Chats, Workers, s.MaxDelay, s.Queue)
	for i, r := range s.Requests {
		fmt.Fprintf(&b, "  %-12v request %s: prompt %d, %d tokens, n %d, whole %t, stop string %t, deadline %v, buffer %d, pace %v\n",
			r.At, s.Name(i), r.Prompt, r.Tokens, r.N, r.Whole, r.Stop, r.Deadline, r.Window, r.Pace)
	}
	for _, f := range s.Faults {
		when := f.At.String()
		if f.Message > 0 {
			when = fmt.Sprintf("m%d+%v", f.Message, f.After)
		}
		fmt.Fprintf(&b, "  %-12s %s (stream %s, chat-service %d, llm-worker %d, for %v, %d messages)\n", when, names[f.Kind], s.Name(f.Stream), f.Chat, f.Worker, f.For, f.N)
	}
	return b.String()
}

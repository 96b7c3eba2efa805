package schedule

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A drawer draws a random schedule.
type drawer struct{ *rand.Rand }

func (r drawer) one(of ...int) int { return of[r.IntN(len(of))] }

// in reports true once in n draws.
func (r drawer) in(n int) bool { return r.IntN(n) == 0 }

func (r drawer) between(least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// New draws the schedule of a seed.
func New(seed uint64) *Schedule {
	r := drawer{rand.New(rand.NewPCG(seed, 0x77686e63))}
	s := &Schedule{Seed: seed, Chats: r.one(1, 2, 2), MaxDelay: time.Duration(r.one(2, 10, 40)) * time.Millisecond, Queue: r.in(4), Links: Links(r.one(0, 0, 0, 1, 1, 2)), Blocking: r.in(6), Stays: r.in(6)}
	for range r.one(1, 1, 1, 2, 3) {
		s.Requests = append(s.Requests, r.request())
	}
	s.Requests[0].At = 0
	r.join(s)
	for range r.one(0, 1, 1, 2, 2, 2, 3, 4) {
		s.Faults = append(s.Faults, r.fault(s))
	}
	if n := len(s.Faults); n > 1 && r.in(2) { // a double fault
		f := &s.Faults[n-1]
		f.At, f.Message, f.After = s.Faults[0].At, s.Faults[0].Message, s.Faults[0].After+r.between(0, 3*time.Millisecond)
		if f.Message == 0 {
			f.At += f.After
		}
	}
	if s.Chats > 1 && r.in(12) {
		s.Faults = append(s.Faults, r.stopInMove(s)...)
	}
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	drawer{rand.New(rand.NewPCG(seed, 0x636f6e6e))}.carry(s)
	return s
}

// carry draws what carries the requests of clients, and what strangers send.
func (r drawer) carry(s *Schedule) {
	s.Secure = r.in(4)
	for i := range s.Requests {
		q := &s.Requests[i]
		q.HTTP2, q.Chunked, q.Expects = r.in(2), r.in(8), r.in(8)
		if q.Line != i { // a connection is read at one pace, and in HTTP/1.1 nothing overtakes a body
			before := &s.Requests[i-1]
			if q.HTTP2 = before.HTTP2; s.Muxed(i) {
				q.Pace = before.Pace
			}
			q.Expects = q.Expects && !q.Ahead
			before.Expects = before.Expects && !q.Ahead
		}
		for _, reader := range q.Readers {
			for j := range reader.Sessions {
				n := &reader.Sessions[j]
				n.HTTP2, n.Socket = r.in(2), r.in(4)
			}
		}
	}
	for range r.one(0, 0, 0, 0, 0, 0, 1, 2) {
		s.Strangers = append(s.Strangers, Stranger{At: r.between(0, 60*time.Millisecond), Which: r.IntN(len(Strange)), Piece: r.one(50, 1<<10, 1<<20), Plain: r.in(8)})
	}
}

// join draws which requests share the connection of the request before.
func (r drawer) join(s *Schedule) {
	for i := range s.Requests {
		q := &s.Requests[i]
		if q.Line = i; i == 0 || q.Kept || !r.in(2) { // the id of a kept stream is known by its answer alone
			continue
		}
		before := &s.Requests[i-1]
		before.Follows = true
		q.Line, q.Ahead, q.Window = before.Line, r.in(2), before.Window
		q.At = before.At + r.between(time.Microsecond, time.Duration(r.one(5, 60, 400))*time.Millisecond)
	}
}

// stopInMove draws the loss of all chat-services in the middle of a stream, and a stop while
// api-service looks for another one.
func (r drawer) stopInMove(s *Schedule) (all []Fault) {
	lost := Fault{
		Kind: []Kind{CutChat, KillChat, DrainChat}[r.IntN(3)], Stream: r.IntN(len(s.Requests)), Message: 8 + r.IntN(r.one(10, 40)), After: time.Duration(r.Int64N(1000)),
		For: r.between(time.Millisecond, 4*time.Second),
	}
	for lost.Chat = range s.Chats {
		all = append(all, lost)
	}
	stop := lost
	stop.Kind, stop.Chat = []Kind{DeleteStream, ClientLeaves, StopAtChat, DrainEdge}[r.IntN(4)], r.IntN(s.Chats)
	stop.After += r.between(0, time.Duration(r.one(50, 400, 3000))*time.Millisecond)
	return append(all, stop)
}

func (r drawer) request() Request {
	q := Request{
		At: r.between(0, 60*time.Millisecond), Prompt: r.IntN(Long), Tokens: r.one(1, 2, 5, 5, 12, 12, 25, 60), Whole: r.in(4),
		Stop: r.in(5), N: r.one(1, 1, 1, 1, 1, 1, 2), Window: r.one(1<<10, 4<<10, 64<<10),
	}
	if r.in(20) {
		q.Prompt = Long
	}
	if r.in(8) {
		q.Pace = r.between(time.Millisecond, 60*time.Millisecond)
	}
	if r.in(6) {
		q.Deadline = r.between(5*time.Millisecond, 600*time.Millisecond)
	}
	if q.Kept = r.in(5); q.Kept {
		q.Whole = false
	}
	if q.Kept || r.in(8) {
		q.Leave = []string{"", Cancel, Detach, Drain, Linger + "20ms", Linger + "300ms"}[r.IntN(6)]
	}
	if q.Keeps() {
		for range r.one(0, 1, 1, 2, 3) {
			q.Readers = append(q.Readers, r.reader())
		}
	}
	return q
}

func (r drawer) reader() Reader {
	reader := Reader{At: r.between(0, 100*time.Millisecond)}
	if r.in(6) {
		reader.At = r.between(0, 2*time.Second)
	}
	sessions := r.one(1, 1, 2, 3, 4)
	for i := range sessions {
		s := Session{Window: r.one(64, 512, 64<<10), Resume: i > 0 && !r.in(4)}
		if i > 0 {
			s.Pause = r.between(0, time.Duration(r.one(1, 30, 400))*time.Millisecond)
		}
		if i < sessions-1 {
			s.Events = 1 + r.IntN(6)
		}
		if r.in(4) {
			s.Pace = r.between(time.Millisecond, 40*time.Millisecond)
		}
		if r.in(8) {
			s.Stall = r.between(10*time.Millisecond, 3*time.Second)
		}
		reader.Sessions = append(reader.Sessions, s)
	}
	return reader
}

// fault draws a fault of the schedule s, whose requests are drawn.
func (r drawer) fault(s *Schedule) Fault {
	f := Fault{
		Kind: r.kind(), Stream: r.IntN(len(s.Requests)), Chat: r.IntN(s.Chats), Worker: r.IntN(Workers), N: 1 + r.IntN(12),
		For: []time.Duration{
			r.between(time.Millisecond, 30*time.Millisecond), r.between(30*time.Millisecond, time.Second), r.between(time.Second, 4*time.Second), 40 * time.Second,
		}[r.IntN(4)],
	}
	if f.Kind == ForgeChat || f.Kind == ForgeWorker {
		f.N = r.IntN(Forgeries)
	}
	if r.in(2) {
		f.At = r.between(0, time.Duration(r.one(20, 80, 250, 600))*time.Millisecond)
		return f
	}
	f.Message, f.After = 1+r.IntN(r.one(6, 15, 40, 80)), time.Duration(r.Int64N(1000))
	if r.in(3) {
		f.After = r.between(0, 5*time.Millisecond)
	}
	return f
}

func (r drawer) kind() Kind {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	draw, kind := r.IntN(total), Kind(0)
	for draw >= faults[kind].weight {
		draw -= faults[kind].weight
		kind++
	}
	return kind
}

// Package schedule draws the external events of the path: the requests of clients, the readers of
// kept streams, and faults.
package schedule

import (
	"fmt"
	"strings"
	"time"
)

// Workers is the number of llm-workers.
const Workers = 2

// A Schedule has all external events of the path.
type Schedule struct {
	Seed     uint64
	Chats    int           // chat-services
	MaxDelay time.Duration // of one message
	Links    Links
	Queue    bool // streams wait in chat-service for a worker that has room
	Blocking bool // writes on links wait for room, as over TLS
	Stays    bool // streams that have a token do not move to another worker
	Secure   bool // clients reach api-service over TLS
	Requests []Request
	Faults   []Fault
	// Strangers have nothing to do with the streams.
	Strangers []Stranger
}

// Links say where the services serve links, and whether their callers look for them.
type Links int

// The Links.
const (
	Only   Links = iota // instead of gRPC
	Beside              // on ports beside those of gRPC
	None                // nowhere, as older services
)

// A Request is the request of one client.
type Request struct {
	At       time.Duration
	Line     int  // the connection: the index of its first request
	Ahead    bool // the request does not wait for the answer before it on the connection
	Follows  bool // another request follows on the connection
	HTTP2    bool // the connection has HTTP/2 if it has TLS, and answers its requests at a time
	Chunked  bool // the length of the body is not announced
	Expects  bool // the body waits until it is asked for
	Prompt   int  // index in Prompts
	Tokens   int  // max_tokens
	Whole    bool
	Stop     bool // with a stop string
	N        int  // choices
	Window   int  // bytes of the client's buffer
	Pace     time.Duration
	Deadline time.Duration // 0 for none
	Kept     bool          // POST /v1/streams
	Leave    string        // the policy of X-Leave; "" for the default
	Readers  []Reader      // of the stream's events, if the stream is kept
}

// Keeps reports whether the events of the request's stream can be read again while it runs.
func (r *Request) Keeps() bool {
	return r.Kept || r.Leave == Detach || strings.HasPrefix(r.Leave, Linger)
}

// The policies for a stream without a reader. A duration follows Linger.
const (
	Cancel = "cancel"
	Drain  = "drain"
	Detach = "detach"
	Linger = "linger:"
)

// Patience returns how long a stream of the request runs without a reader, before its first reader
// and after its last. A negative time means without bound.
func (r *Request) Patience() (before, after time.Duration) {
	const first, forever = 30 * time.Second, -1
	switch leave := r.Leave; {
	case leave == Detach || leave == Drain:
		return forever, forever
	case leave == Cancel || leave == "" && !r.Kept:
		return first, 0
	case leave == "":
		return DefaultLinger, DefaultLinger
	default:
		d, err := time.ParseDuration(strings.TrimPrefix(leave, Linger))
		if err != nil {
			panic(err) // policies are drawn
		}
		return d, d
	}
}

// DefaultLinger is the time that a stream of POST /v1/streams runs without a reader if the request
// has no policy.
const DefaultLinger = time.Second

// A Reader reads the events of a kept stream, in one session after another.
type Reader struct {
	At       time.Duration // after the request
	Sessions []Session
}

// A Session is one connection of a reader. The last session of a reader reads to the end.
type Session struct {
	Pause  time.Duration // before the connection
	Resume bool          // continues after the last event of the earlier sessions; otherwise from the beginning
	Events int           // the reader leaves after this many events; 0 means never
	Window int           // bytes of the reader's buffer
	HTTP2  bool          // as of a Request
	Socket bool          // the events come over a WebSocket
	Pace   time.Duration // between two reads
	Stall  time.Duration // the reader stops reading for this long after its first event; 0 means never
}

// A Kind is a kind of fault.
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
	HalfOpenChat
	HalfOpenWorker
	ForgeChat
	ForgeWorker
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
	ClientVanishes
	ClientStalls
	DeleteStream
	StopAtChat
	StopAtWorker
	kinds
)

// faults are the kinds, with their relative frequencies. A fault that an observer could name plays rows of
// the catalogue, lab.Faults; those of the network have none.
var faults = [kinds]struct {
	name   string
	weight int
	rows   []string
}{
	CutChat:        {"cut api-service>chat-service", 3, nil},
	CutWorker:      {"cut chat-service>llm-worker", 4, nil},
	CutChatAfter:   {"cut api-service>chat-service in place of a message", 3, nil},
	CutWorkerAfter: {"cut chat-service>llm-worker in place of a message", 5, nil},
	StallChat:      {"stall api-service>chat-service", 2, []string{"packets to chat-service are dropped, another one continues", "no chat-service is left"}},
	StallWorker:    {"stall chat-service>llm-worker", 3, []string{"packets to llm-worker are dropped, another one continues"}},
	SlowChat:       {"slow down api-service>chat-service", 1, nil},
	SlowWorker:     {"slow down chat-service>llm-worker", 1, nil},
	HalfOpenChat:   {"half open api-service>chat-service", 2, nil},
	HalfOpenWorker: {"half open chat-service>llm-worker", 3, nil},
	ForgeChat:      {"forbidden frame on api-service>chat-service", 2, nil},
	ForgeWorker:    {"forbidden frame on chat-service>llm-worker", 2, nil},
	KillWorker:     {"kill llm-worker", 4, []string{"llm-worker is killed, another one continues"}},
	KillChat:       {"kill chat-service", 3, []string{"chat-service is killed, another one continues", "chat-service is killed", "no chat-service is left"}},
	DrainWorker:    {"drain llm-worker", 3, []string{"llm-worker drains, another one continues"}},
	DrainChat:      {"drain chat-service", 2, []string{"chat-service drains, another one continues", "chat-service drains"}},
	DrainEdge:      {"drain api-service", 1, []string{"api-service drains"}},
	HurryEdge:      {"second signal to api-service", 1, []string{"api-service gets a second signal"}},
	EngineFails:    {"engine fails", 3, []string{"engine fails"}},
	EngineHangs:    {"engine hangs", 3, []string{"llm-worker hangs, another one continues"}},
	EngineIsDeaf:   {"engine is deaf", 1, []string{"engine stalls and ignores stops"}},
	EnginePanics:   {"engine panics", 1, []string{"engine panics"}},
	ClientLeaves:   {"client leaves", 5, []string{"client closes its connection"}},
	ClientVanishes: {"client's machine vanishes", 2, []string{"client's connection goes dead"}},
	ClientStalls:   {"client stops reading", 3, []string{"client stops reading", "client reads a byte at a time"}},
	DeleteStream:   {"DELETE", 5, []string{"DELETE of the stream"}},
	StopAtChat:     {"unary Stop at chat-service", 2, []string{"operator stops it at chat-service"}},
	StopAtWorker:   {"unary Stop at llm-worker", 2, []string{"operator stops it at llm-worker"}},
}

// Rows returns the faults of the catalogue that a kind plays, by name. nil means that it has none.
func (k Kind) Rows() (names []string) { return faults[k].rows }

func (k Kind) String() string { return faults[k].name }

// A Fault happens at a time, or with a message.
type Fault struct {
	At      time.Duration // if Message is 0
	Message int           // the number of a message between services, counted from 1
	After   time.Duration // the time from Message to the fault
	Kind    Kind
	Stream  int // index in Requests
	Chat    int
	Worker  int
	For     time.Duration // duration; 0 means for good
	N       int           // messages, for a cut in place of a message; the frame, for a forbidden one
}

// Forgeries is the number of forbidden frames, times two directions.
const Forgeries = 50

// Muxed reports whether the answer to a request comes over HTTP/2.
func (s *Schedule) Muxed(request int) bool { return s.Secure && s.Requests[request].HTTP2 }

// Has reports whether the schedule has a fault of one of the kinds.
func (s *Schedule) Has(kinds ...Kind) bool {
	for _, f := range s.Faults {
		for _, k := range kinds {
			if f.Kind == k {
				return true
			}
		}
	}
	return false
}

// Name returns the name of a stream.
func (s *Schedule) Name(stream int) string { return fmt.Sprintf("s%d", stream) }

// Prompts are the clients' prompts.
var Prompts = []string{"What happens when I close the tab?", "Name a bird.", "Say it again, and then once more, slowly and in other words.", long}

// Long is the index of a prompt whose messages are sent in parts.
const Long = 3

var long = strings.Repeat("a flock of birds over the river, ", 1000)

// String lists the schedule, one event a line.
func (s *Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d chat-services, %d llm-workers, messages take up to %v, queue in chat-service %t, links %d, blocking %t, streams stay %t, TLS %t\n",
		s.Seed, s.Chats, Workers, s.MaxDelay, s.Queue, s.Links, s.Blocking, s.Stays, s.Secure)
	for i, r := range s.Requests {
		fmt.Fprintf(&b, "  %-12v request %s: connection %d, ahead %t, HTTP/2 %t, chunked %t, expects %t, prompt %d, %d tokens, n %d, whole %t, stop string %t, deadline %v, buffer %d, pace %v, kept %t, leave %q\n",
			r.At, s.Name(i), r.Line, r.Ahead, r.HTTP2, r.Chunked, r.Expects, r.Prompt, r.Tokens, r.N, r.Whole, r.Stop, r.Deadline, r.Window, r.Pace, r.Kept, r.Leave)
		for j, reader := range r.Readers {
			fmt.Fprintf(&b, "  +%-11v reader %d of %s: %+v\n", reader.At, j, s.Name(i), reader.Sessions)
		}
	}
	for _, o := range s.Strangers {
		fmt.Fprintf(&b, "  %-12v a stranger sends %s in pieces of %d, without TLS %t\n", o.At, Strange[o.Which].Name, o.Piece, o.Plain)
	}
	for _, f := range s.Faults {
		when := f.At.String()
		if f.Message > 0 {
			when = fmt.Sprintf("m%d+%v", f.Message, f.After)
		}
		fmt.Fprintf(&b, "  %-12s %s (stream %s, chat-service %d, llm-worker %d, for %v, %d messages)\n", when, f.Kind, s.Name(f.Stream), f.Chat, f.Worker, f.For, f.N)
	}
	return b.String()
}

package lab

import (
	"slices"
	"strings"
)

// A Fault is something that breaks, and what its observers must see.
type Fault struct {
	Name   string    // what breaks, and where
	Ending           // of a stream that runs then; its Reason is "" if only many streams show the fault
	Over   []Carrier // what connects the client to api-service when the fault is played; nil means Plain alone
	Bounds []Bound
}

// A Carrier is what connects a client to api-service.
type Carrier string

// The carriers of clients.
const (
	Plain  Carrier = "HTTP/1.1"
	Secure Carrier = "HTTP/1.1 with TLS"
	HTTP2  Carrier = "HTTP/2"
)

// A Bound is the largest value that a figure of a fault may have, under load.
type Bound struct {
	Figure string
	Unit   Unit
	Most   float64
}

// A Unit is the unit of a figure.
type Unit int

// The units of figures.
const (
	Count Unit = iota
	Millis
	Mebibytes
	Percent
)

// The hops of a stream whose ending is in the catalogue. The other replica of the api-service, and
// another worker, are not on its way.
const (
	Edge0   = APIService + "/0"
	Edge1   = APIService + "/1"
	Worker0 = LLMWorker + "/0"
	Worker1 = LLMWorker + "/1"
)

// chain is the way of a stream through the services, in the order of requests.
var chain = []string{Edge0, ChatService, Worker0}

// An Ending is what the observers of a stream must see of its end: its client, and the log, the
// ledger, the metrics and the span of each hop. Origin, Hops and paths are joined with " > ".
type Ending struct {
	Reason   string
	Origin   string // the last element is the hop at which the ending enters the path
	Hops     string // the hops that the stream crosses; "" means all of chain
	Dead     string // the hop that was killed and cannot report
	Leaves   string // the hop that ends and can report only in its log
	Deaf     bool   // the client cannot receive the ending
	NoEngine bool   // the engine does not run, or cannot report
	Gateway  bool   // api-service/0 and chat-service are one process
}

// A Statement is an observer's account of an ending: "reason: origin > ... > hop".
type Statement string

// Say returns a statement.
func Say(reason string, path []string) Statement {
	return Statement(reason + ": " + strings.Join(path, " > "))
}

// FaultNamed returns the fault with a name of the catalogue.
func FaultNamed(name string) (Fault, bool) {
	at := slices.IndexFunc(Faults, func(f Fault) bool { return f.Name == name })
	if at < 0 {
		return Fault{}, false
	}
	return Faults[at], true
}

// Bound returns the bound of a figure. A figure without a bound is a count that must be 0.
func (f *Fault) Bound(figure string) Bound {
	at := slices.IndexFunc(f.Bounds, func(b Bound) bool { return b.Figure == figure })
	if at < 0 {
		return Bound{Figure: figure}
	}
	return f.Bounds[at]
}

// way splits a joined path.
func way(path string) []string { return strings.Split(path, " > ") }

// Path returns the hops that the stream crosses.
func (e *Ending) Path() []string {
	if e.Hops == "" {
		return slices.Clone(chain)
	}
	return way(e.Hops)
}

// Want returns the statement that a hop must make: the reason, and the path from the origin to the hop.
func (e *Ending) Want(hop string) Statement {
	origin := way(e.Origin)
	entry := len(origin) - 1
	from, to := slices.Index(chain, origin[entry]), slices.Index(chain, hop)
	between := slices.Clone(chain[min(from, to) : max(from, to)+1])
	if to < from {
		slices.Reverse(between)
	}
	return Say(e.Reason, append(origin[:entry], between...))
}

// Witnesses returns the hops that must report.
func (e *Ending) Witnesses() []string {
	return slices.DeleteFunc(e.Path(), func(hop string) bool {
		return hop == e.Dead || e.Gateway && e.Dead == Edge0 && hop == ChatService
	})
}

// IsLeaving reports whether a hop ends and can report only in its log.
func (e *Ending) IsLeaving(hop string) bool {
	inGateway := func(hop string) bool { return hop == Edge0 || hop == ChatService }
	return hop == e.Leaves || e.Gateway && inGateway(e.Leaves) && inGateway(hop)
}

// InGateway returns the ending if api-service/0 and chat-service are one process. It reports false if
// the fault ends only the process of chat-service: then a gateway has no such ending.
func (e *Ending) InGateway() (joined Ending, ok bool) {
	joined = *e
	joined.Gateway = true
	switch {
	case e.Dead == ChatService, e.Leaves == ChatService && e.Hops == "":
		return Ending{}, false
	case e.Dead == Edge0:
		joined.Origin = ChatService // the worker lost the connection from chat-service
	}
	return joined, true
}

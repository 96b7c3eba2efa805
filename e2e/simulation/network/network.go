// Package network carries the links between the services of one process, in memory and in virtual
// time, and breaks them as a TCP network would.
//
// A Host represents one process: it serves gRPC services over links, and dials other hosts. The
// links are the product's (package link), on connections of this package: bytes take time, reads
// and writes are short now and then, and a buffer that the receiver does not read stops its sender.
// A cut connection loses the bytes in flight, and both ends notice later, each in its own time. A
// stalled one delivers nothing, so that only the pings of the links notice. A delay depends only on
// the seed, the connection and the virtual time, so the same seed gives the same network, however
// goroutines are scheduled.
//
// A Network is created and used within one bubble of testing/synctest.
package network

import (
	"slices"
	"sync"
	"time"
)

// A Network joins hosts.
type Network struct {
	seed     uint64
	maxDelay time.Duration // of one write
	blocking bool          // writes between hosts block, as those of TLS

	mu       sync.Mutex // guards the following fields, and those of hosts and paths
	hosts    map[string]*Host
	paths    map[string]*path
	calls    []*Call
	contacts []Contact
	serial   int // connections so far
	messages int
	step     func(n int) // called for each message of a stream; may be nil
}

// New returns a network without hosts. If blocking is true, the connections between hosts are not
// nowait.Direct: like connections of TLS, they only have writes that wait for room.
func New(seed uint64, maxDelay time.Duration, blocking bool) *Network {
	return &Network{seed: seed, maxDelay: maxDelay, blocking: blocking, hosts: map[string]*Host{}, paths: map[string]*path{}}
}

// OnMessage sets a function, which must not block, that is called with the number of each message of a
// bidi call, counted from 1. Call OnMessage before the first call.
func (n *Network) OnMessage(step func(n int)) { n.step = step }

// Calls returns all calls of bidi methods so far, in the order of their opening.
func (n *Network) Calls() []*Call {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*Call(nil), n.calls...)
}

// A Contact is a probe or a failed dial.
type Contact struct {
	From     *Host
	To       string // address
	Began    time.Time
	At       time.Time // when the contact ended
	Probe    bool      // false means the failed dial of a stream's call
	Answered bool      // the probe was answered
	Well     bool      // and the callee takes streams
}

func (n *Network) note(c Contact) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.contacts = append(n.contacts, c)
}

// Contacts returns all probes and all failed dials, in the order of their ends.
func (n *Network) Contacts() []Contact {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]Contact(nil), n.contacts...)
}

// Operator returns the host of an operator, which only makes calls.
func (n *Network) Operator() *Host {
	n.mu.Lock()
	h := n.hosts[operator]
	n.mu.Unlock()
	if h == nil {
		h = n.Host(operator, false)
	}
	return h
}

const operator = "operator:1"

// A path has the state that all connections between two addresses share.
type path struct {
	stalledFrom, stalledUntil time.Time // zero for never
	slower                    time.Duration
	cutAfter                  int         // messages until its connections are cut; 0 means never
	halfOpen                  bool        // a connection was half open, so an end may have noticed the loss late
	lost                      []time.Time // when callers closed connections, or noticed their loss
	forge                     int         // the forgery that is sent next; 0 means none
}

func key(from, to string) string { return from + ">" + to }

// path returns the path between two addresses.
func (n *Network) path(from, to string) *path {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pathOf(from, to)
}

// pathOf is path for a caller that holds mu.
func (n *Network) pathOf(from, to string) *path {
	p := n.paths[key(from, to)]
	if p == nil {
		p = &path{}
		n.paths[key(from, to)] = p
	}
	return p
}

// Cut breaks the connections from one address to another. New connections can be made.
func (n *Network) Cut(from, to string) {
	for _, c := range n.between(from, to) {
		c.cut(nil)
	}
}

// HalfOpen breaks the connections from one address to another so that only one of the two sides
// notices: the other one sends, and gets no answer.
func (n *Network) HalfOpen(from, to string, callerNotices bool) {
	n.mu.Lock()
	n.pathOf(from, to).halfOpen = true
	n.mu.Unlock()
	for _, c := range n.between(from, to) {
		by := c.callee
		if callerNotices {
			by = c.caller
		}
		c.sever(by)
	}
}

// Forge inserts a frame that the protocol forbids into the next bytes between two addresses, as a peer
// with a bug would send it. which chooses the frame and the direction.
func (n *Network) Forge(from, to string, which int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pathOf(from, to).forge = 1 + which
}

// CutAfter breaks the connections from one address to another in place of the messages-th message
// from now.
func (n *Network) CutAfter(from, to string, messages int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pathOf(from, to).cutAfter = messages
}

// Stall stops all traffic between two addresses for d, in both directions. A stall that is running
// does not end sooner.
func (n *Network) Stall(from, to string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pathOf(from, to)
	now, until := time.Now(), time.Now().Add(d)
	if !now.Before(p.stalledUntil) {
		p.stalledFrom = now
	}
	if until.After(p.stalledUntil) {
		p.stalledUntil = until
	}
}

// Stalled reports whether the traffic between two addresses is stalled now.
func (n *Network) Stalled(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Before(n.pathOf(from, to).stalledUntil)
}

// EverStalled reports whether the traffic between two addresses was ever stalled, or one of its
// connections half open.
func (n *Network) EverStalled(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.paths[key(from, to)]
	return l != nil && (!l.stalledFrom.IsZero() || l.halfOpen)
}

// StalledSince returns when the last stall between two addresses began, or zero if there was none
// before a time.
func (n *Network) StalledSince(from, to string, before time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.paths[key(from, to)]
	if l == nil || !l.stalledFrom.Before(before) {
		return time.Time{}
	}
	return l.stalledFrom
}

// Lost reports whether one address has closed a connection to another, or noticed its loss, in a time
// interval.
func (n *Network) Lost(from, to string, since, until time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.paths[key(from, to)]
	return p != nil && slices.ContainsFunc(p.lost, func(at time.Time) bool { return !at.Before(since) && !at.After(until) })
}

// AnyStalled reports whether the traffic between any two addresses is stalled now, or a connection was
// half open.
func (n *Network) AnyStalled() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.paths {
		if l.halfOpen || time.Now().Before(l.stalledUntil) {
			return true
		}
	}
	return false
}

// Slow adds a delay to all messages between two addresses.
func (n *Network) Slow(from, to string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pathOf(from, to).slower = d
}

// between returns the open connections from one address to another.
func (n *Network) between(from, to string) (all []*conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.hosts[to]; h != nil {
		for c := range h.conns {
			if c.caller.host.name == from {
				all = append(all, c)
			}
		}
	}
	return all
}

// delay draws the time that bytes take which are sent now, in one direction of a connection. Most
// delays are below a tenth of the longest one.
func (n *Network) delay(direction uint64, p *path) time.Duration {
	x := mix(n.seed ^ mix(direction^uint64(time.Now().UnixNano())<<8))
	share := float64(x>>11) / (1 << 53)
	share *= share * share
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Duration(share*float64(n.maxDelay)) + time.Duration(x%1000) + p.slower
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// Package network carries gRPC calls between the services of one process, in memory and in virtual
// time, and breaks them as a TCP network would.
//
// A Host represents one process: gRPC services are registered with it, and it dials other hosts.
// Messages are encoded and take time. Messages of one call keep their order; messages of several
// calls do not. A cut connection loses the messages in flight, and both sides notice later, each in
// its own time. A stalled connection delivers nothing; each side gives up when its keep-alive would
// fail. Each delay depends only on the seed, the call and the position of the message in the call,
// so the same seed gives the same network, however goroutines are scheduled.
//
// A Network is created and used within one bubble of testing/synctest.
package network

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Window bounds the bytes of messages in flight to a receiver that does not read, in each direction
// of a call. It is far below gRPC's window, so that short answers meet backpressure.
const Window = 1 << 10

// The times after which the two sides give up a stalled connection, like the keep-alives of the
// services.
const (
	callerGivesUp = 25 * time.Second
	CalleeGivesUp = 15 * time.Second
	dialGivesUp   = time.Second
)

// A Network joins hosts.
type Network struct {
	seed     uint64
	maxDelay time.Duration // of one message

	mu       sync.Mutex // guards the following fields, and those of hosts and links
	hosts    map[string]*Host
	links    map[string]*link
	calls    []*Call
	contacts []Contact
	open     int // calls whose handler runs or will run
	messages int
	step     func(n int) // called for each message of a stream; may be nil
}

// New returns a network without hosts.
func New(seed uint64, maxDelay time.Duration) *Network {
	return &Network{seed: seed, maxDelay: maxDelay, hosts: map[string]*Host{}, links: map[string]*link{}}
}

// OnMessage sets a function that is called on a new goroutine with the number of each message of a
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
	From  *Host
	To    string // address
	Began time.Time
	At    time.Time // when the contact ended
	Probe bool      // false means the failed dial of a stream's call
	Well  bool      // the probe was answered, and the callee takes streams
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

// Open returns the number of calls with a running handler.
func (n *Network) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open
}

// Operator returns the host of an operator, which only makes calls.
func (n *Network) Operator() *Host {
	n.mu.Lock()
	h := n.hosts[operator]
	n.mu.Unlock()
	if h == nil {
		h = n.Host(operator)
	}
	return h
}

const operator = "operator:1"

// A Host represents a process. It implements guard.Server.
type Host struct {
	net  *Network
	name string // its address

	registry sync.Mutex // guards services
	services map[string]service
	up       bool // the host accepts calls
	conns    map[*conn]bool
	serving  sync.WaitGroup
}

type service struct {
	desc *grpc.ServiceDesc
	impl any
}

// Host returns a new process at an address. An earlier process at the address must have been killed
// or stopped.
func (n *Network) Host(addr string) *Host {
	h := &Host{net: n, name: addr, services: map[string]service{}, up: true, conns: map[*conn]bool{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[addr] = h
	return h
}

// RegisterService implements grpc.ServiceRegistrar.
func (h *Host) RegisterService(desc *grpc.ServiceDesc, impl any) {
	h.registry.Lock()
	defer h.registry.Unlock()
	h.services[desc.ServiceName] = service{desc, impl}
}

// service returns a registered service.
func (h *Host) service(name string) (s service, ok bool) {
	h.registry.Lock()
	defer h.registry.Unlock()
	s, ok = h.services[name]
	return s, ok
}

// GetServiceInfo implements guard.Server.
func (h *Host) GetServiceInfo() map[string]grpc.ServiceInfo { return nil }

// Name returns the address of the process.
func (h *Host) Name() string { return h.name }

// Stop refuses further calls, and returns when the handlers have returned.
func (h *Host) Stop() {
	h.net.mu.Lock()
	h.up = false
	h.net.mu.Unlock()
	h.serving.Wait()
}

// Kill breaks all connections of the process, in both directions, and refuses further calls. The
// process itself notices at once; the other sides notice later.
func (h *Host) Kill() {
	h.net.mu.Lock()
	h.up = false
	var mine []*conn
	for c := range h.conns {
		mine = append(mine, c)
	}
	h.net.mu.Unlock()
	for _, c := range mine {
		c.cut(h)
	}
}

// A link has the state that all connections between two addresses share.
type link struct {
	stalledFrom, stalledUntil time.Time // zero for never
	slower                    time.Duration
	cutAfter                  int // messages until the link is cut; 0 means never
}

func key(from, to string) string { return from + ">" + to }

// link returns the link between two addresses. The network's mu is held.
func (n *Network) link(from, to string) *link {
	l := n.links[key(from, to)]
	if l == nil {
		l = &link{}
		n.links[key(from, to)] = l
	}
	return l
}

// Cut breaks the connections from one address to another. New connections can be made.
func (n *Network) Cut(from, to string) {
	for _, c := range n.between(from, to) {
		c.cut(nil)
	}
}

// CutAfter breaks the connections from one address to another in place of the messages-th message
// from now.
func (n *Network) CutAfter(from, to string, messages int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(from, to).cutAfter = messages
}

// Stall stops all traffic between two addresses for d, in both directions.
func (n *Network) Stall(from, to string, d time.Duration) {
	n.mu.Lock()
	l := n.link(from, to)
	now := time.Now()
	l.stalledFrom, l.stalledUntil = now, now.Add(d)
	n.mu.Unlock()
	for _, c := range n.between(from, to) {
		c.stalled(d)
	}
}

// Stalled reports whether the traffic between two addresses is stalled now.
func (n *Network) Stalled(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Before(n.link(from, to).stalledUntil)
}

// EverStalled reports whether the traffic between two addresses was ever stalled.
func (n *Network) EverStalled(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.links[key(from, to)]
	return l != nil && !l.stalledFrom.IsZero()
}

// AnyStalled reports whether the traffic between any two addresses is stalled now.
func (n *Network) AnyStalled() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		if time.Now().Before(l.stalledUntil) {
			return true
		}
	}
	return false
}

// Slow adds a delay to all messages between two addresses.
func (n *Network) Slow(from, to string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(from, to).slower = d
}

// between returns the open connections from one address to another.
func (n *Network) between(from, to string) (all []*conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.hosts[to]; h != nil {
		for c := range h.conns {
			if c.from.name == from {
				all = append(all, c)
			}
		}
	}
	return all
}

// delay draws the delay of a message. Most are below a tenth of the longest one.
func (n *Network) delay(call uint64, direction, position int) time.Duration {
	x := mix(n.seed ^ mix(call<<20^uint64(direction)<<16^uint64(position)))
	share := float64(x>>11) / (1 << 53)
	share *= share * share
	return time.Duration(share*float64(n.maxDelay)) + time.Duration(x%1000)
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

// String returns a summary for reports.
func (n *Network) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return fmt.Sprintf("%d hosts, %d calls, %d messages, %d calls open", len(n.hosts), len(n.calls), n.messages, n.open)
}

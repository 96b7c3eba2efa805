package lab

import (
	"net"
	"sync"
	"time"
)

// A WireFault is what a wire does to the bytes that pass. The zero value passes them at once.
type WireFault struct {
	// HoldToCallee and HoldToCaller keep the bytes of one direction until the next fault, like packets
	// that are lost until the network has healed.
	HoldToCallee, HoldToCaller bool
	// Delay is the time for which each read's bytes wait.
	Delay time.Duration
	// Cut is the number of bytes of the next read that still pass; then the connection is reset. 0
	// means no cut.
	Cut int
	// Orphan resets callers and keeps their callees' connections open and silent until the next fault,
	// as if the callers had lost their power.
	Orphan bool
	// Refuse resets all connections, and new ones, until the next fault.
	Refuse bool
}

// Partition holds all bytes: connections remain open and new ones are accepted, and the services hear
// nothing, as behind a firewall that drops packets.
var Partition = WireFault{HoldToCallee: true, HoldToCaller: true}

// wireFaults holds the current fault of a wire.
type wireFaults struct {
	mu      sync.Mutex // guards the following fields
	now     WireFault
	changed chan struct{} // closed, and replaced, by Set
}

func newWireFaults() *wireFaults { return &wireFaults{changed: make(chan struct{})} }

func (f *wireFaults) get() (now WireFault, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now, f.changed
}

// Set replaces the fault of all connections. The zero WireFault heals the wire.
func (w *Wire) Set(f WireFault) {
	w.faults.set(f)
	if f.Refuse {
		w.Reset()
	}
}

func (f *wireFaults) set(now WireFault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = now
	close(f.changed)
	f.changed = make(chan struct{})
}

// admit waits until bytes may pass, and returns how many of n. ok is false if the connection ends
// after them.
func (w *Wire) admit(n int, toCallee bool) (pass int, ok bool) {
	for {
		f, changed := w.faults.get()
		held := f.Orphan || toCallee && f.HoldToCallee || !toCallee && f.HoldToCaller
		var after <-chan time.Time
		if !held {
			if f.Cut > 0 && n > 0 {
				return min(n, f.Cut), false
			}
			if f.Delay == 0 {
				return n, true
			}
			after, changed = time.After(f.Delay), nil
		}
		select {
		case <-changed:
			if f.Orphan {
				return 0, false // the caller's end is gone
			}
		case <-after:
			return n, true
		case <-w.closed:
			return 0, false
		}
	}
}

// orphan resets the caller's end of a connection when an Orphan fault begins, until over is closed.
func (w *Wire) orphan(near *net.TCPConn, over <-chan struct{}) {
	for {
		f, changed := w.faults.get()
		if f.Orphan {
			reset(near)
			return
		}
		select {
		case <-changed:
		case <-over:
			return
		}
	}
}

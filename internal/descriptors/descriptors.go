// Package descriptors keeps a process in service while its file descriptors run out.
//
// The kernel gives out the lowest free descriptor. So the number of a new connection's descriptor
// shows how many are left: if it lies in the reserve, the last part below the limit, all descriptors
// below the reserve are open. A connection in the reserve is late. Listeners of HTTP answer only
// probes on a late connection, and close it after one response; listeners for other services take
// late connections only in the first half of the reserve. The rest of the reserve is for the
// connections that this process makes, for files, and for probes.
//
// A caller is refused at once, and never waits in the backlog of a listener: if no descriptor at all
// is left, a spare one is closed to accept and close the connection.
package descriptors

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	// maxReserve is the size of the reserve. A process with a low limit reserves one part in
	// reservePart of its descriptors.
	maxReserve  = 64
	reservePart = 4
	// maxBrief bounds the late connections of an HTTP listener. The oldest is closed for a new one.
	maxBrief = 8
)

// A budget divides the descriptors of a process.
type budget struct {
	limit   func() int // it may change while the process runs (prlimit)
	refused atomic.Int64
	begun   chan struct{} // has an item when the reserve has been reached

	mu    sync.Mutex // guards the following field
	spare int        // a descriptor that is closed to accept a connection; -1 without one
}

// own returns the budget of this process.
var own = sync.OnceValue(func() *budget { return newBudget(processLimit) })

// processLimit returns the soft limit of this process. Go raises it to the hard limit at the start.
func processLimit() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil || r.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(r.Cur)
}

func newBudget(limit func() int) *budget {
	b := &budget{limit: limit, begun: make(chan struct{}, 1), spare: -1}
	b.refill()
	return b
}

// zone returns the number of the first descriptor of the reserve, and the size of the reserve.
func (b *budget) zone() (first, reserve int) {
	limit := b.limit()
	reserve = min(maxReserve, limit/reservePart)
	return limit - reserve, reserve
}

// Limit returns the limit of this process, and how many descriptors there are below the reserve.
func Limit() (limit, room int) {
	first, reserve := own().zone()
	return first + reserve, first
}

// Refused returns the number of connections, and of requests on late connections, that were refused.
func Refused() int64 { return own().refused.Load() }

// Refuse counts a request on a late connection that was refused.
func Refuse() { own().refused.Add(1) }

// Low reports whether the next connection would be late.
func Low() bool {
	first, _ := own().zone()
	return own().next() >= first
}

// Late reports whether a new descriptor is late.
func Late(fd int) bool { return own().late(fd) }

func (b *budget) late(fd int) bool {
	if first, _ := b.zone(); fd < first {
		return false
	}
	b.note()
	return true
}

// note wakes Watch.
func (b *budget) note() {
	select {
	case b.begun <- struct{}{}:
	default: // it has not seen the last one yet
	}
}

// next returns the number of the next descriptor, or MaxInt if there is none.
func (b *budget) next() int {
	b.mu.Lock() // while drop runs, the number of the spare descriptor is free
	defer b.mu.Unlock()
	fd, err := open()
	if err != nil {
		return math.MaxInt
	}
	_ = syscall.Close(fd)
	return fd
}

// open opens a descriptor that stands for any other.
func open() (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	return fd, err
}

// refill opens the spare descriptor if it is closed and there is one.
func (b *budget) refill() {
	if b.spare >= 0 {
		return
	}
	if fd, err := open(); err == nil {
		b.spare = fd
	}
}

// IsExhausted reports whether err says that there is no descriptor left in the process or in the
// system.
func IsExhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// Drop refuses a connection for which there is no descriptor: it closes the spare one and accepts
// and closes the connection. ln is the descriptor of a listener that does not block. Drop returns
// EAGAIN if no connection waits, and EMFILE if there is no spare descriptor.
func Drop(ln int) error { return own().drop(ln) }

func (b *budget) drop(ln int) error {
	b.note()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	if b.spare < 0 {
		return syscall.EMFILE
	}
	_ = syscall.Close(b.spare)
	b.spare = -1
	defer b.refill()
	fd, _, err := syscall.Accept(ln)
	if err != nil {
		return err
	}
	b.refused.Add(1)
	return syscall.Close(fd)
}

// A Brief has the late connections of an HTTP listener. The zero value is ready for use.
type Brief struct {
	mu   sync.Mutex // guards the following field
	open []*late    // from the oldest to the newest
}

type late struct{ close func() }

// Enter registers a late connection, and closes the oldest one if there are too many. The caller
// calls leave when the connection is closed.
func (b *Brief) Enter(closeIt func()) (leave func()) {
	c := &late{closeIt}
	var oldest *late
	b.mu.Lock()
	b.open = append(b.open, c)
	if len(b.open) > maxBrief {
		oldest, b.open = b.open[0], b.open[1:]
	}
	b.mu.Unlock()
	if oldest != nil {
		Refuse()
		oldest.close()
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if i := slices.Index(b.open, c); i >= 0 {
			b.open = slices.Delete(b.open, i, i+1)
		}
	}
}

package quota

import (
	"context"
	"slices"
	"sync"
)

// A departure is the end of a stream, as reported to the server.
type departure struct {
	accounts []Account
	stream   string
	tokens   int
	unsure   bool // an earlier call has failed, but may have reached the server
}

// maxDepartures bounds the departures that wait for the server.
const maxDepartures = 10_000

// departures are the departures that the server has not received, because it did not answer.
type departures struct {
	mu      sync.Mutex
	waiting []departure
	sending bool // a goroutine sends the departures
}

// add queues a departure. It returns false if there is no room.
func (d *departures) add(one departure) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) >= maxDepartures {
		return false
	}
	d.waiting = append(d.waiting, one)
	return true
}

// any reports whether departures wait.
func (d *departures) any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting) > 0
}

// claim reports whether departures wait and no goroutine sends them. After true the caller sends
// them.
func (d *departures) claim() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sending || len(d.waiting) == 0 {
		return false
	}
	d.sending = true
	return true
}

// take removes the departure that has waited longest. If there is none, the claim ends.
func (d *departures) take() (one departure, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 {
		d.sending, d.waiting = false, nil
		return one, false
	}
	one, d.waiting = d.waiting[0], d.waiting[1:]
	return one, true
}

// release puts back a departure that could not be sent, and ends the claim.
func (d *departures) release(one departure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sending, d.waiting = false, slices.Insert(d.waiting, 0, one)
}

// depart reports the end of a stream to the server. While the server does not answer, the departure
// waits.
func (b *Book) depart(d departure) {
	if b.asks() {
		err := b.tell(d)
		b.answered(err)
		if err == nil {
			return
		}
		d.unsure = true
	}
	if !b.missed.add(d) {
		b.config.Log.Warn("redis does not answer, and too many streams have ended since; a stream is not charged", "tokens", d.tokens)
	}
}

func (b *Book) tell(d departure) error {
	ctx, cancel := context.WithTimeout(context.Background(), b.config.timeout)
	defer cancel()
	return b.shared.leave(ctx, d)
}

// sendMissed sends the waiting departures to the server, until a call fails.
func (b *Book) sendMissed() {
	if !b.missed.claim() {
		return
	}
	for {
		d, ok := b.missed.take()
		if !ok {
			return
		}
		if err := b.tell(d); err != nil {
			d.unsure = true
			b.missed.release(d)
			b.answered(err)
			return
		}
	}
}

package route

import (
	"sync"
	"time"
)

const (
	// budgetRatio is how many retries a request earns for all.
	budgetRatio = 0.2
	// budgetPerSecond lets a service with few requests retry, too.
	budgetPerSecond = 1
	// budgetMax is how many retries can be saved up, so that a quiet hour does not pay for a storm.
	budgetMax = 20
)

// A budget bounds retries: when workers fail, requests must not become several times as many. What it refuses ends as the
// first worker said. Full at first.
type budget struct {
	mu   sync.Mutex // guards the following fields
	left float64
	at   time.Time
}

// earn notes a request.
func (b *budget) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.refilled()+budgetRatio, budgetMax)
}

// spend reports whether there may be a retry.
func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = b.refilled()
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

func (b *budget) refilled() float64 {
	now := time.Now()
	since := now.Sub(b.at)
	b.at = now
	return min(b.left+since.Seconds()*budgetPerSecond, budgetMax)
}

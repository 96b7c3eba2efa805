package failover

import (
	"sync"
	"time"
)

const (
	// BudgetRatio is the number of retries that a request earns for all requests.
	BudgetRatio = 0.2
	// budgetPerSecond lets a service with few requests retry, too.
	budgetPerSecond = 1
	// BudgetMax is how many retries can be saved up, so that a quiet hour does not pay for a storm.
	BudgetMax = 20
)

// A Budget bounds retries on workers that are in poor standing: when all workers fail, requests must not become several times as
// many. A retry on a worker in good standing costs nothing, since what could fail there has not failed yet. A request whose retry
// the budget refuses ends as its first worker said. The zero value is full. Time is an argument.
type Budget struct {
	mu   sync.Mutex // guards the following fields
	left float64
	at   time.Time
}

// Earn records a request.
func (b *Budget) Earn(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.refilled(now)+BudgetRatio, BudgetMax)
}

// Spend reports whether there may be a retry.
func (b *Budget) Spend(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = b.refilled(now)
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

func (b *Budget) refilled(now time.Time) float64 {
	since := now.Sub(b.at)
	b.at = now
	return min(b.left+since.Seconds()*budgetPerSecond, BudgetMax)
}

package failover

import (
	"sync"
	"time"
)

const (
	// BudgetRatio is the number of retries that each request adds to the budget.
	BudgetRatio = 0.2
	// budgetPerSecond lets a service with few requests retry as well.
	budgetPerSecond = 1
	// BudgetMax bounds the saved retries, so that a quiet hour does not pay for a burst of
	// failures.
	BudgetMax = 20
)

// A Budget bounds retries on workers in poor standing, so that requests do not multiply when all
// workers fail. A retry on a worker in good standing is free, because that worker has not failed
// yet. A request whose retry is refused ends with the error of its first worker. The zero value is
// a full budget. The caller passes the time.
type Budget struct {
	mu   sync.Mutex // guards the following fields
	left float64
	at   time.Time
}

// Earn adds one request's share to the budget.
func (b *Budget) Earn(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.refilled(now)+BudgetRatio, BudgetMax)
}

// Spend takes one retry from the budget. It reports false if the budget is empty.
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

package route

import "time"

// Retry takes one retry from the pool's budget, for a request that a stage above the pool repeats. It reports false if the budget
// is spent.
func (p *Pool) Retry() bool { return p.retries.Spend(time.Now()) }

package trial

import (
	"sync"
	"time"
)

// Gaps collects the gaps between the texts of the streams while it is open.
type Gaps struct {
	mu   sync.Mutex
	open bool
	all  []time.Duration
}

func (g *Gaps) add(_ time.Time, gap time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open {
		g.all = append(g.all, gap)
	}
}

// During returns the gaps of a while.
func (g *Gaps) During(lasts time.Duration) []time.Duration {
	g.set(true)
	time.Sleep(lasts)
	return g.set(false)
}

// set opens or closes the collection, and returns the gaps so far.
func (g *Gaps) set(open bool) (all []time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all, g.all, g.open = g.all, nil, open
	return all
}

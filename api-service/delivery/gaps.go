package delivery

import "time"

// bounds are the upper bounds of the counted pauses between two events; longer pauses are counted
// in one more element.
var bounds = [...]time.Duration{
	1 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
}

// Gaps counts the pauses between the events of one stream, by length.
type Gaps [len(bounds) + 1]uint32

func (g *Gaps) add(gap time.Duration) {
	i := 0
	for i < len(bounds) && gap >= bounds[i] {
		i++
	}
	g[i]++
}

// over returns the number of pauses that are at least as long as a bound.
func (g *Gaps) over(bound int) (n uint32) {
	for _, more := range g[bound+1:] {
		n += more
	}
	return n
}

func (g *Gaps) all() (n uint32) { return g[0] + g.over(0) }

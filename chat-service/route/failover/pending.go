package failover

import "math/bits"

// A Pending is the set of events without arguments that occurred while the reader had a message.
type Pending uint32

// Add adds a kind. Down also adds a Tick, because Down depends on the worker's silence.
func (p *Pending) Add(kind Kind) {
	*p |= 1 << kind
	if kind == Down {
		*p |= 1 << Tick
	}
}

// Take removes one kind from the set, which must not be empty. A Tick is returned first, as Tokens
// without tokens: the worker was not awaited while the reader had a message, so its silence begins
// now.
func (p *Pending) Take() Kind {
	if *p&(1<<Tick) != 0 {
		*p &^= 1 << Tick
		return Tokens
	}
	kind := Kind(bits.TrailingZeros32(uint32(*p)))
	*p &^= 1 << kind
	return kind
}

package failover

import "math/bits"

// A Pending is a set of kinds of events without arguments, which happened while the reader had a message.
type Pending uint32

// Add adds a kind.
func (p *Pending) Add(kind Kind) { *p |= 1 << kind }

// Take removes one kind from the set, which must not be empty. A Tick becomes a message without tokens: the worker was not awaited
// while the reader had a message, so its silence begins now.
func (p *Pending) Take() Kind {
	kind := Kind(bits.TrailingZeros32(uint32(*p)))
	*p &^= 1 << kind
	if kind == Tick {
		return Tokens
	}
	return kind
}

package tally

import "time"

// Bounds are the upper bounds of the gaps that Counts tells apart.
var Bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	75 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond,
	1 * time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// Bucket returns the index of a gap in Counts.Gaps.
func Bucket(gap time.Duration) int {
	i := 0
	for i < len(Bounds) && gap > Bounds[i] {
		i++
	}
	return i
}

// Counts are figures that can be summed up over the messages of one direction, of one stream or of many.
type Counts struct {
	Messages, Bytes, Tokens uint64
	// Gaps counts the times between two messages with tokens: Gaps[i] those up to Bounds[i], and the last those above all Bounds.
	Gaps [len(Bounds) + 1]uint64
	// GapSum is the sum of the gaps.
	GapSum time.Duration
}

// Add adds other to c.
func (c *Counts) Add(other *Counts) {
	c.Messages += other.Messages
	c.Bytes += other.Bytes
	c.Tokens += other.Tokens
	c.GapSum += other.GapSum
	for i, n := range other.Gaps {
		c.Gaps[i] += n
	}
}

// A Side is the figures of one direction of one stream.
type Side struct {
	Counts
	// FirstTokens is how many tokens the first message with tokens had.
	FirstTokens uint64
	// Longest is the longest gap.
	Longest time.Duration
}

// PerToken returns the mean time per token after the first message with tokens. ok is false if there was only one such message.
func (s *Side) PerToken() (mean time.Duration, ok bool) {
	n := s.Tokens - s.FirstTokens
	if n == 0 {
		return 0, false
	}
	return s.GapSum / time.Duration(n), true
}

// A Snapshot is the figures of a stream at one time. All times leave out Waited.
type Snapshot struct {
	Received, Sent Side
	TakenBack      uint64        // tokens of Sent that became void
	Waited         time.Duration // in which the stream waited for its caller
}

// Delivered returns how many tokens were sent and not taken back.
func (s *Snapshot) Delivered() uint64 { return s.Sent.Tokens - min(s.TakenBack, s.Sent.Tokens) }

// Wasted returns how many tokens were generated and not delivered.
func (s *Snapshot) Wasted() uint64 {
	if s.Received.Tokens < s.Delivered() { // a read between the two counts of one message, while the stream runs
		return 0
	}
	return s.Received.Tokens - s.Delivered()
}

// gaps counts gaps by Bucket.
type gaps [len(Bounds) + 1]uint32

// A direction is one side of a Tally, guarded by the Tally's mu. kept counts the messages as the hop handles them.
type direction struct {
	bytes, tokens uint64
	merged        uint64 // messages beside those that kept counts
	kept          Ends[Message]

	gaps        *gaps // nil if they are not counted
	gapSum      time.Duration
	longest     time.Duration
	firstTokens uint32        // of the first message with tokens
	first       time.Duration // when that message came, waits included; 0 if none has
	last        time.Duration // when the last message with tokens came, waits left out

	alike uint32 // messages with tokens that sizeOf was asked for
	size  uint32 // of the last of them that was computed
}

// side returns the figures of the direction.
func (d *direction) side() Side {
	s := Side{
		Counts:      Counts{Messages: d.kept.n + d.merged, Bytes: d.bytes, Tokens: d.tokens, GapSum: d.gapSum},
		FirstTokens: uint64(d.firstTokens), Longest: d.longest,
	}
	if d.gaps != nil {
		for i, n := range d.gaps {
			s.Gaps[i] = uint64(n)
		}
	}
	return s
}

// addToken records the time of a message with tokens: at includes waits for the caller, and active does not. It returns active
// if the message is the first.
func (d *direction) addToken(tokens int, at, active time.Duration) (first time.Duration) {
	before := d.last
	d.last = active
	if d.first == 0 {
		d.first, d.firstTokens = at, uint32(tokens)
		return active
	}
	gap := active - before
	d.gapSum += gap
	d.longest = max(d.longest, gap)
	if d.gaps != nil {
		d.gaps[Bucket(gap)]++
	}
	return 0
}

// sizeOf returns the size of a message, or of a message like it.
func (d *direction) sizeOf(tokens int, m any) int {
	if tokens == 0 {
		return size(m)
	}
	if d.alike < sizeFirst || d.alike%sizeEach == 0 {
		d.size = uint32(size(m))
	}
	d.alike++
	return int(d.size)
}

package tally

import "time"

// Bounds are the upper bounds of the buckets in Counts.Gaps.
var Bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	75 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond,
	1 * time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// Bucket returns the index of gap in Counts.Gaps.
func Bucket(gap time.Duration) int {
	i := 0
	for i < len(Bounds) && gap > Bounds[i] {
		i++
	}
	return i
}

// Counts are figures of the messages of one direction that can be summed over streams. Bytes and
// gaps are counted only if the Tally is timed.
type Counts struct {
	Messages, Bytes, Tokens uint64
	// Gaps is a histogram of the times between two messages with tokens: Gaps[i] counts the gaps up
	// to Bounds[i], and the last element counts the gaps above all Bounds.
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

// A Side has the figures of one direction of one stream.
type Side struct {
	Counts
	// FirstTokens is the number of tokens in the first message with tokens.
	FirstTokens uint64
	// Longest is the longest gap.
	Longest time.Duration
}

// Quantile estimates a quantile of the gaps, 0 to 1, from their histogram. It returns 0 if there are
// no gaps.
func (s *Side) Quantile(q float64) time.Duration {
	var all uint64
	for _, n := range s.Gaps {
		all += n
	}
	rank := q * float64(all)
	var below, lower float64
	for i, n := range s.Gaps {
		upper := float64(s.Longest)
		if i < len(Bounds) {
			upper = min(upper, float64(Bounds[i]))
		}
		if n > 0 && below+float64(n) >= rank {
			return time.Duration(lower + (upper-lower)*(rank-below)/float64(n))
		}
		below, lower = below+float64(n), upper
	}
	return 0
}

// PerToken returns the mean time per token after the first message with tokens. ok is false if
// there was at most one such message.
func (s *Side) PerToken() (mean time.Duration, ok bool) {
	n := s.Tokens - s.FirstTokens
	if n == 0 {
		return 0, false
	}
	return s.GapSum / time.Duration(n), true
}

// A Snapshot has the figures of a stream at one time. All times exclude Waited.
type Snapshot struct {
	Received, Sent Side
	TakenBack      uint64        // tokens of Sent that became void
	Waited         time.Duration // time that the stream has waited for its caller
}

// Delivered returns the number of tokens that were sent and not taken back.
func (s *Snapshot) Delivered() uint64 { return s.Sent.Tokens - min(s.TakenBack, s.Sent.Tokens) }

// Wasted returns the number of tokens that were generated but not delivered.
func (s *Snapshot) Wasted() uint64 {
	if s.Received.Tokens < s.Delivered() { // while the stream runs, a read may happen between the two counts of one message
		return 0
	}
	return s.Received.Tokens - s.Delivered()
}

// gaps counts gaps, indexed by Bucket.
type gaps [len(Bounds) + 1]uint32

// A direction has the figures of one direction of a Tally, whose mu guards it. kept counts the
// messages as the hop handles them.
type direction struct {
	bytes, tokens uint64
	merged        uint64 // messages that were merged into others, which kept does not count
	kept          Ends[Message]

	gaps    *gaps // nil if gaps are not counted
	gapSum  time.Duration
	longest time.Duration
	first   time.Duration // when that message came, including waits; 0 if none has come
	last    time.Duration // when the last message with tokens came, excluding waits

	firstTokens uint32 // of the first message with tokens
	alike       uint32 // number of messages with tokens passed to sizeOf
	size        uint32 // of the last message whose size was computed
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

// addToken records the time of a message with tokens. at includes the waits for the caller, active
// excludes them. It returns active if the message is the first message with tokens, otherwise 0.
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

// sizeOf returns the size of a message in bytes, or the size of a similar message.
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

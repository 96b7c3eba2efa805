package replay

import (
	"strconv"
	"strings"
)

// generationSize is the distance between the numbers of two generations. A log has fewer events
// than generationSize: Limits.StreamBytes is below 2^31, and an event is charged eventCost bytes.
const generationSize = 1_000_000_000

// Seams are the positions of the last events of a log's earlier generations, in their order.
type Seams []uint64

// Number returns the number of the event at a position, and 0 for position 0.
func (s Seams) Number(position uint64) uint64 {
	generation := uint64(0)
	for _, last := range s {
		if position > last {
			generation++
		}
	}
	if position == 0 {
		return 0
	}
	return generation*generationSize + position
}

// position returns the position of the event with a number. ok is false if the log cannot have such an
// event.
func (s Seams) position(seq uint64) (position uint64, ok bool) {
	position = seq % generationSize
	return position, s.Number(position) == seq
}

// until returns the last position, at most to, in the generation of the event after the position after.
func (s Seams) until(after, to uint64) uint64 {
	for _, last := range s {
		if last > after {
			return min(last, to)
		}
	}
	return to
}

// Lost reports whether an earlier instance has shown readers the event with this number without
// storing it.
func (s Seams) Lost(seq uint64) bool {
	generation := seq / generationSize
	return generation < uint64(len(s)) && seq%generationSize > s[generation]
}

// String returns the form that ParseSeams parses.
func (s Seams) String() string {
	var b []byte
	for i, position := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, position, 10)
	}
	return string(b)
}

// ParseSeams parses positions with commas between them.
func ParseSeams(text string) (seams Seams, err error) {
	for digits := range strings.SplitSeq(text, ",") {
		if digits == "" {
			continue
		}
		position, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return nil, err
		}
		seams = append(seams, position)
	}
	return seams, nil
}

package responses

const generationSize = 1_000_000_000

// A sequence numbers the events of a response. The zero value has counted none.
//
// The number of an event is its generation times 10^9, as in the replay log, plus the number of
// events before it. A generation is the events that one instance has sent; a takeover begins the
// next generation. So the number of an event that was lost with its instance never names another
// event.
type sequence struct {
	count int64
	seams []int64 // for each generation before this one, the count at its end
}

// Next returns the number of the next event.
func (s *sequence) Next() int64 { return int64(len(s.seams))*generationSize + s.count }

// Add counts an event, and returns its number.
func (s *sequence) Add() int64 {
	number := s.Next()
	s.count++
	return number
}

// Generation returns the number of takeovers so far.
func (s *sequence) Generation() uint64 { return uint64(len(s.seams)) }

// TakeOver begins a generation.
func (s *sequence) TakeOver() { s.seams = append(s.seams, s.count) }

// Lost reports whether the event with this number was lost with its instance, so that no event has
// the number, now or later.
func (s *sequence) Lost(number int64) bool {
	generation, before := number/generationSize, number%generationSize
	if generation < int64(len(s.seams)) {
		return before >= s.seams[generation] || generation > 0 && before < s.seams[generation-1]
	}
	return generation > int64(len(s.seams)) || generation > 0 && before < s.seams[generation-1]
}

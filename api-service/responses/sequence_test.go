package responses

import (
	"testing"
)

func TestNumbersOfATakeoverAreNew(t *testing.T) {
	var s sequence
	known := map[int64]bool{}
	add := func(want ...int64) {
		for _, number := range want {
			if got := s.Add(); got != number {
				t.Errorf("an event has the number %d, want %d", got, number)
			}
			known[number] = true
		}
	}
	add(0, 1, 2)
	s.TakeOver()
	s.TakeOver() // before the instance has sent an event
	add(2_000_000_003, 2_000_000_004)
	s.TakeOver()
	add(3_000_000_005)
	if s.Next() != 3_000_000_006 {
		t.Errorf("the next number is %d", s.Next())
	}
	for generation := range int64(5) {
		for before := range int64(8) {
			number := generation*1_000_000_000 + before
			yetToCome := generation == 3 && before > 5
			if lost := s.Lost(number); lost == (known[number] || yetToCome) {
				t.Errorf("event %d: lost is %t", number, lost)
			}
		}
	}
}

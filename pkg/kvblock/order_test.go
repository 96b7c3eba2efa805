package kvblock

import "testing"

func TestNamesDoNotDependOnTheByteOrder(t *testing.T) {
	ids := []uint32{1, 1 << 31, 77, 1535}
	want := Next(5, ids)
	defer func(was bool) { littleEndian = was }(littleEndian)
	littleEndian = false
	if got := Next(5, ids); got != want {
		t.Errorf("%x written one by one, %x copied", got, want)
	}
}

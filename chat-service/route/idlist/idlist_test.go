package idlist_test

import (
	"slices"
	"testing"

	"github.com/whence-dev/whence/chat-service/route/idlist"
)

func TestListKeepsAllIDsInOrder(t *testing.T) {
	for each := range 40 {
		var l idlist.List
		var want []uint32
		for n := range 50 {
			ids := make([]uint32, each)
			for i := range ids {
				ids[i] = uint32(n*each + i)
			}
			l.Add(ids)
			want = append(want, ids...)
			if got := l.AppendTo([]uint32{7}); l.Len() != len(want) || !slices.Equal(got[1:], want) || got[0] != 7 {
				t.Fatalf("%d ids at a time: %d ids %v, want %v", each, l.Len(), got, want)
			}
		}
	}
}

package route

import (
	"fmt"
	"testing"

	"github.com/whence-dev/whence/chat-service/fleet"
)

func workersWith(loads ...int64) (all []*fleet.Worker) {
	for _, load := range loads { // whose streams never end
		w := fleet.Pretended(fmt.Sprint(len(all)), nil)
		for range load {
			w.Charge(0, 0)
		}
		all = append(all, w)
	}
	return all
}

// shares runs a policy for 1,000 streams that never end and returns how many each worker got.
func shares(p Policy, workers []*fleet.Worker) (counts []int) {
	counts = make([]int, len(workers))
	for range 1000 {
		chosen := p(nil, workers)
		for i, w := range workers {
			if w == chosen {
				counts[i]++
			}
		}
		chosen.Charge(0, 0)
	}
	return counts
}

func TestPoliciesShareStreamsOut(t *testing.T) {
	for name, c := range map[string]struct {
		want   [3]int // of workers to which others have given 0, 0 and 400 streams
		within int
	}{
		LeastLoadedPolicy: {[3]int{467, 467, 66}, 1},
		RoundRobinPolicy:  {[3]int{333, 333, 333}, 1},
		PowerOfTwoPolicy:  {[3]int{460, 460, 80}, 60},
	} {
		p, err := NewPolicy(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range shares(p, workersWith(0, 0, 400)) {
			if n < c.want[i]-c.within || n > c.want[i]+c.within {
				t.Errorf("%s gave worker %d %d of 1,000 streams, want about %d", name, i, n, c.want[i])
			}
		}
		for i, n := range shares(p, workersWith(0, 0, 0, 0)) {
			if n < 200 || n > 300 {
				t.Errorf("%s gave worker %d %d of 1,000 streams, want about 250", name, i, n)
			}
		}
		if counts := shares(p, workersWith(7)); counts[0] != 1000 {
			t.Errorf("%s: %v", name, counts)
		}
	}
	if _, err := NewPolicy("best"); err == nil {
		t.Error("there is a best policy")
	}
}

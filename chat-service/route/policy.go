package route

import (
	"fmt"
	"math/rand/v2"

	"github.com/whence-dev/whence/chat-service/fleet"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// A Policy chooses the worker of a stream. There is at least one candidate; they come in the order of the configuration, and
// all of them can take the stream. It is called by one goroutine at a time, so it may remember.
type Policy func(req *workerv1.TokenRequest, candidates []*fleet.Worker) *fleet.Worker

// The policies, by the values of --policy. The first is the default.
const (
	LeastLoadedPolicy = "least-loaded"
	RoundRobinPolicy  = "round-robin"
	PowerOfTwoPolicy  = "power-of-two"
	SessionPolicy     = "session"
	KVPolicy          = "kv" // made by NewKV, for it must be told what workers have
)

// NewPolicy returns the policy of that name, but for KVPolicy; "" is the default.
func NewPolicy(name string) (Policy, error) {
	switch name {
	case "", LeastLoadedPolicy:
		return LeastLoaded(), nil
	case RoundRobinPolicy:
		return RoundRobin(), nil
	case PowerOfTwoPolicy:
		return PowerOfTwo(), nil
	case SessionPolicy:
		return BySession(), nil
	default:
		return nil, fmt.Errorf("there is no policy %.64q; there are %s, %s, %s, %s and %s", name, LeastLoadedPolicy, RoundRobinPolicy, PowerOfTwoPolicy, SessionPolicy, KVPolicy)
	}
}

// LeastLoaded takes the worker with the fewest streams, and each in turn of several that have as few.
func LeastLoaded() Policy { return least((*fleet.Worker).Load) }

// least takes the worker of which there is the least, and each in turn of several of which there is as little.
func least(of func(*fleet.Worker) int64) Policy {
	turn := 0
	return func(_ *workerv1.TokenRequest, candidates []*fleet.Worker) *fleet.Worker {
		turn++
		best := candidates[turn%len(candidates)]
		for i := range candidates {
			if w := candidates[(turn+i)%len(candidates)]; of(w) < of(best) {
				best = w
			}
		}
		return best
	}
}

// PromptPolicy returns what chooses who reads prompts for other workers, where the policy of that name chooses those: the same, if it
// is about what workers have read before, else LeastUnread. Like NewPolicy it leaves KVPolicy, which is nil, to NewKV.
func PromptPolicy(name string) Policy {
	switch name {
	case KVPolicy:
		return nil
	case SessionPolicy:
		return BySession()
	default:
		return LeastUnread()
	}
}

// LeastUnread takes the worker whose prompts have the fewest tokens that are still to be read, and each in turn of several that have
// as few.
func LeastUnread() Policy { return least((*fleet.Worker).Unread) }

// RoundRobin takes each in turn.
func RoundRobin() Policy {
	turn := 0
	return func(_ *workerv1.TokenRequest, candidates []*fleet.Worker) *fleet.Worker {
		turn++
		return candidates[turn%len(candidates)]
	}
}

// PowerOfTwo takes the less loaded of two workers drawn at random: nearly as even as LeastLoaded, and several chat-services
// that hear of the same idle worker do not all run there at once.
func PowerOfTwo() Policy {
	return func(_ *workerv1.TokenRequest, candidates []*fleet.Worker) *fleet.Worker {
		n := len(candidates)
		first := rand.IntN(n)
		if n == 1 {
			return candidates[first]
		}
		second := (first + 1 + rand.IntN(n-1)) % n
		if candidates[second].Load() < candidates[first].Load() {
			return candidates[second]
		}
		return candidates[first]
	}
}

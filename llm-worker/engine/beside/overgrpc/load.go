package overgrpc

import "github.com/whence-dev/whence/llm-worker/engine/beside"

// A schedulerLoad is the load of one data-parallel rank, as both services report it.
type schedulerLoad interface {
	GetNumRunningReqs() int32
	GetNumWaitingReqs() int32
	GetNumUsedTokens() int32
	GetMaxTotalNumTokens() int32
	GetMaxRunningRequests() int32 // 0 from older versions of vLLM
}

// Load returns the sum of all ranks.
func Load[L schedulerLoad](ranks []L) *beside.ServerLoad {
	sum := new(beside.ServerLoad)
	for _, rank := range ranks {
		sum.Running += int(max(0, rank.GetNumRunningReqs()))
		sum.Waiting += int(max(0, rank.GetNumWaitingReqs()))
		sum.KVUsed += uint64(max(0, rank.GetNumUsedTokens()))
		sum.KVTotal += uint64(max(0, rank.GetMaxTotalNumTokens()))
		sum.Slots += int(max(0, rank.GetMaxRunningRequests()))
	}
	return sum
}

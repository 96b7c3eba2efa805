package route

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/whence-dev/whence/chat-service/fleet"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/kvblock"
)

const (
	// sessionTokens is how much of a prompt stands for its session where the caller names none: more than what a chat template and
	// a short system prompt have in common.
	sessionTokens = 64
	// sessionSlack is how much more than its share a worker may have before a session goes to its next one.
	sessionSlack = 1.25
)

// BySession takes the same worker for all requests of a session, as long as it has no more than its share of streams. It is
// rendezvous hashing with bounded loads: when a worker comes or goes, only its own sessions move, and a session whose worker is
// busy has the same second choice each time. Several chat-services agree without talking to each other.
func BySession() Policy {
	return func(req *workerv1.TokenRequest, candidates []*fleet.Worker) *fleet.Worker {
		var total int64
		for _, w := range candidates {
			total += w.Load()
		}
		most := int64(math.Ceil(sessionSlack * float64(total+1) / float64(len(candidates))))
		key := session(req)
		var best *fleet.Worker
		var height uint64
		for _, w := range candidates {
			if w.Load() >= most {
				continue
			}
			if h := rendezvous(key, w.Name()); best == nil || h > height {
				best, height = w, h
			}
		}
		return best // there is one: not all have more than their share
	}
}

// session returns the key of a request's session.
func session(req *workerv1.TokenRequest) uint64 {
	if s := req.GetSession(); s != "" {
		return textHash(0, s)
	}
	prompt := req.GetPrompt()
	return kvblock.Next(0, prompt[:min(len(prompt), sessionTokens)])
}

// rendezvous returns how much a session is drawn to a worker.
func rendezvous(session uint64, worker string) uint64 { return textHash(session, worker) }

func textHash(seed uint64, text string) uint64 {
	d := xxhash.NewWithSeed(seed)
	_, _ = d.WriteString(text) // never fails
	return d.Sum64()
}

package policy

import (
	"math"
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"
)

// The scorers, by their names in a composition.
const (
	loadScorer     = "load"
	prefillScorer  = "prefill"
	kvScorer       = "kv"
	sessionScorer  = "session"
	affinityScorer = "affinity"
)

// tokensPerStream is the number of tokens that costs as much as a running stream.
const tokensPerStream = 16

const (
	// sessionSlack limits a session's worker to this multiple of its fair share of streams. Above
	// that, the session goes to its next worker.
	sessionSlack = 1.25
	// fewStreams is a number of streams that no worker is overloaded with, unless it runs fewer: a
	// share of few streams would move a session that meets one other stream.
	fewStreams = 8
)

// A filter returns the candidates that pass, as indexes into all, in the order of left. It may
// reuse left.
type filter func(r Request, all []Candidate, left []int) []int

var filters = map[string]filter{"two": two, "share": share}

// two keeps two random candidates, so that several chat-services that see the same idle worker do
// not all choose it.
func two(_ Request, _ []Candidate, left []int) []int {
	if len(left) <= 2 {
		return left
	}
	first := rand.IntN(len(left))
	second := (first + 1 + rand.IntN(len(left)-1)) % len(left)
	return append(left[:0], left[first], left[second])
}

// share keeps the candidates with at most sessionSlack times their fair share of the streams, or with
// few streams.
func share(_ Request, all []Candidate, left []int) []int {
	var total float64
	for _, i := range left {
		total += all[i].Streams
	}
	most := math.Ceil(sessionSlack * (total + 1) / float64(len(left)))
	kept := left[:0:len(left)]
	for _, i := range left {
		if c := &all[i]; c.Streams < most || c.Streams < fewStreams && !c.Full {
			kept = append(kept, i)
		}
	}
	return kept
}

// A scorer adds its weighted costs for the remaining candidates to costs.
type scorer struct {
	add func(r Request, all []Candidate, left []int, costs []float64, weight float64, opts Options)
}

var scorers = map[string]scorer{
	loadScorer: each(func(_ Request, c *Candidate, _ Options) float64 { return c.Streams }),
	prefillScorer: each(func(r Request, c *Candidate, opts Options) float64 {
		return max(0, float64(c.Unread)+float64(r.Prompt)-opts.Overlap*float64(c.Cached)) / tokensPerStream
	}),
	kvScorer: each(func(r Request, c *Candidate, _ Options) float64 {
		return (float64(c.Held) + float64(r.Prompt) - float64(c.Cached)) / tokensPerStream
	}),
	sessionScorer:  {session},
	affinityScorer: {affinity},
}

// each makes a scorer from a cost function of one candidate.
func each(cost func(r Request, c *Candidate, opts Options) float64) scorer {
	return scorer{func(r Request, all []Candidate, left []int, costs []float64, weight float64, opts Options) {
		for at, i := range left {
			costs[at] += weight * cost(r, &all[i], opts)
		}
	}}
}

// session costs nothing at the session's worker and 1 elsewhere. Rendezvous hashing chooses that
// worker: when a worker joins or leaves, only its own sessions move, and several chat-services
// agree without coordination.
func session(r Request, all []Candidate, left []int, costs []float64, weight float64, _ Options) {
	key := r.Session()
	best, highest := -1, uint64(0)
	for at, i := range left {
		if h := Hash(key, all[i].Name); best < 0 || h > highest {
			best, highest = at, h
		}
	}
	for at := range left {
		if at != best {
			costs[at] += weight
		}
	}
}

// affinity is session for requests whose caller has named the session. Among workers that cost the
// same otherwise, such a session stays at its worker, even after the pool has forgotten what the
// worker has cached. Other requests take turns.
func affinity(r Request, all []Candidate, left []int, costs []float64, weight float64, opts Options) {
	if r.Named {
		session(r, all, left, costs, weight, opts)
	}
}

// Hash hashes a text with a seed.
func Hash(seed uint64, text string) uint64 {
	d := xxhash.NewWithSeed(seed)
	_, _ = d.WriteString(text) // never fails
	return d.Sum64()
}

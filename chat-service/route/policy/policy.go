// Package policy chooses a worker for a stream with filters and weighted scores over snapshots of
// the workers.
//
// A Policy is pure except for its round-robin counter: it sees each worker at one moment, so loads
// cannot change during a decision. A score is a cost measured in streams: a running stream costs 1,
// and so do sixteen tokens to read or to hold. The cheapest worker wins; workers of equal cost take
// turns. The form follows NVIDIA Dynamo's router, the composition follows llm-d's.
package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// A Candidate is a snapshot of a worker.
type Candidate struct {
	Name    string
	Streams float64 // running there, plus recent failures
	Unread  int64   // prompt tokens that the worker has still to read
	Held    int64   // tokens that streams occupy in its KV cache
	Full    bool    // as many streams run there as can
	Cached  int     // tokens of the request's prompt that its KV cache is expected to hold
}

// A Request holds the properties of a request that policies use.
type Request struct {
	Prompt  int           // tokens
	Session func() uint64 // key of the session that the request belongs to
	Named   bool          // the caller has named the session
}

// A Policy returns the index of the candidate that gets the request. There is at least one
// candidate, and every candidate can take the request. Calls must not be concurrent.
type Policy func(r Request, all []Candidate) int

// The named policies. The first is the default.
const (
	LeastLoaded = "least-loaded"
	RoundRobin  = "round-robin"
	PowerOfTwo  = "power-of-two"
	Session     = "session"
	KV          = "kv"
)

// presets are the compositions that the named policies stand for.
var presets = map[string]string{
	"":          "load=1",
	LeastLoaded: "load=1",
	RoundRobin:  "",
	PowerOfTwo:  "two,load=1",
	Session:     "share,session=1",
	KV:          "prefill=1,kv=1,load=1,affinity=1",
}

// Forms describes the input of Parse, for the help of a flag.
const Forms = LeastLoaded + ", " + RoundRobin + ", " + PowerOfTwo + ", " + Session + ", " + KV +
	", or a composition such as load=1,prefill=0.5,session=4: weights of load, prefill, kv, session and affinity, behind the filters two and share"

// Options tune a policy.
type Options struct {
	// Overlap is the weight of a cached token relative to a token that must be read; 0 ignores
	// caches.
	Overlap float64
	// Temperature is the softmax temperature over costs. At 0 the cheapest worker always wins.
	Temperature float64
}

// UsesCache reports whether the named policy uses the contents of the workers' KV caches.
func UsesCache(name string) bool {
	return weighs(name, prefillScorer) || weighs(name, kvScorer)
}

// ForPrompts returns the name of the policy for prefill workers that goes with a policy for decode
// workers: the same policy if it favours workers that have read the prompt's beginning before,
// otherwise the fewest tokens to read.
func ForPrompts(name string) string {
	if UsesCache(name) || weighs(name, sessionScorer) {
		return name
	}
	return prefillScorer + "=1"
}

func weighs(name, scorer string) bool {
	spec, named := presets[name]
	if !named {
		spec = name
	}
	for part := range strings.SplitSeq(spec, ",") {
		if key, weight, _ := strings.Cut(strings.TrimSpace(part), "="); key == scorer && weight != "0" {
			return true
		}
	}
	return false
}

// Parse returns a named policy, or a composition in the form that Forms describes.
func Parse(name string, opts Options) (Policy, error) {
	spec, named := presets[name]
	if !named {
		spec = name
	}
	c := composition{opts: opts}
	for part := range strings.SplitSeq(spec, ",") {
		if spec == "" {
			break
		}
		if err := c.add(strings.TrimSpace(part)); err != nil {
			return nil, fmt.Errorf("there is no policy %.64q: %w; there are %s", name, err, Forms)
		}
	}
	return c.choose, nil
}

// A composition is a policy made of filters and weighted scorers.
type composition struct {
	opts    Options
	filters []filter
	scorers []weightedScorer
	turn    int

	left  []int // scratch: indexes of the candidates that passed the filters
	costs []float64
}

// A weightedScorer is a scorer with the weight of its costs.
type weightedScorer struct {
	scorer
	weight float64
}

func (c *composition) add(part string) error {
	key, text, has := strings.Cut(part, "=")
	if f, ok := filters[key]; ok && !has {
		c.filters = append(c.filters, f)
		return nil
	}
	s, ok := scorers[key]
	if !ok {
		return fmt.Errorf("%q is neither a filter nor a weight", part)
	}
	weight, err := strconv.ParseFloat(text, 64)
	if err != nil || !(weight >= 0 && weight <= 1000) {
		return fmt.Errorf("the weight of %s must be from 0 to 1000", key)
	}
	c.scorers = append(c.scorers, weightedScorer{s, weight})
	return nil
}

func (c *composition) choose(r Request, all []Candidate) int {
	c.turn++
	c.left, c.costs = c.left[:0], c.costs[:0]
	for i := range all {
		c.left = append(c.left, (c.turn+i)%len(all)) // start at the next candidate on each call
	}
	for _, f := range c.filters {
		if left := f(r, all, c.left); len(left) > 0 {
			c.left = left
		}
	}
	for range c.left {
		c.costs = append(c.costs, 0)
	}
	for _, s := range c.scorers {
		s.add(r, all, c.left, c.costs, s.weight, c.opts)
	}
	return c.left[c.draw()]
}

// draw returns the position of the cheapest candidate, or of a random one if there is a
// temperature.
func (c *composition) draw() int {
	best, least, most := 0, math.Inf(1), math.Inf(-1)
	for i, cost := range c.costs {
		if cost < least {
			best, least = i, cost
		}
		most = max(most, cost)
	}
	if c.opts.Temperature <= 0 || most <= least {
		return best
	}
	var total float64
	for i, cost := range c.costs {
		c.costs[i] = math.Exp((least - cost) / (most - least) / c.opts.Temperature)
		total += c.costs[i]
	}
	point := rand.Float64() * total
	for i, weight := range c.costs {
		if point -= weight; point < 0 {
			return i
		}
	}
	return best // reached only by rounding
}

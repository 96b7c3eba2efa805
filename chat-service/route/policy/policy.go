// Package policy chooses a worker for a stream, by filters and weighted scores of snapshots.
//
// A Policy is pure except for its round-robin counter: it sees each worker at one moment, so nothing changes during a
// decision. A score is a cost in streams: one more running stream costs 1, and so do sixteen tokens to read or to
// hold. The cheapest worker wins; equal costs take turns. The form follows NVIDIA Dynamo's router, and the
// composition llm-d's.
package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// A Candidate is a worker as it was when the decision began.
type Candidate struct {
	Name    string
	Streams float64 // running there, and recently failed there
	Unread  int64   // tokens of prompts that it has still to read
	Held    int64   // tokens that streams take of its KV cache
	Cached  int     // tokens of the request's prompt that are expected in its KV cache
}

// A Request holds the properties of a request that policies use.
type Request struct {
	Prompt  int           // tokens
	Session func() uint64 // key of the session that the request belongs to
}

// A Policy returns the index of the candidate that gets a request. There is at least one candidate, and all of them can
// take the request. It is called by one goroutine at a time.
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
	KV:          "prefill=1,kv=1,load=1",
}

// Forms describes the input of Parse, for the help of a flag.
const Forms = LeastLoaded + ", " + RoundRobin + ", " + PowerOfTwo + ", " + Session + ", " + KV +
	", or a composition such as load=1,prefill=0.5,session=4: weights of load, prefill, kv and session, behind the filters two and share"

// Options tune a policy.
type Options struct {
	// Overlap is the weight of a cached token relative to a token that must be read; 0 ignores caches.
	Overlap float64
	// Temperature is the softmax temperature over costs. At 0 the cheapest worker always wins.
	Temperature float64
}

// UsesCache reports whether the policy of that name uses the contents of the workers' KV caches.
func UsesCache(name string) bool {
	return weighs(name, prefillScorer) || weighs(name, kvScorer)
}

// ForPrompts returns the name of the policy for prefill workers that belongs to a policy for decode workers: the same
// policy if it favours workers that have read a prompt's beginning before, else the fewest tokens to read.
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

// Parse returns the policy of that name, or composes one: see Forms.
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

	left  []int // scratch: candidates that the filters left
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
		c.left = append(c.left, (c.turn+i)%len(all)) // each first in turn
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

// draw returns the position of the cheapest candidate, or of one drawn by the temperature.
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
	return best // only by rounding
}

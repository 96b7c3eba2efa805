package sample

import (
	"cmp"
	"math/rand/v2"
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// A filter drops unlikely tokens and draws one of the rest.
type filter struct {
	minP float32
	topK int // 0 keeps all tokens
	topP float64

	candidates []candidate // scratch; grows to one entry for each token id at most
}

// A candidate is a token that may be drawn. Weights are proportional to probabilities; the largest
// is 1.
type candidate struct {
	weight float32
	id     uint32
}

// likelier is a total order of candidates, so that every filter's result is independent of how it
// was computed.
func likelier(a, b candidate) int {
	if c := cmp.Compare(b.weight, a.weight); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

func newFilter(p *llmv1.Sampling) filter {
	f := filter{minP: p.GetMinP(), topK: saturated(p.GetTopK()), topP: 1}
	if p != nil && p.TopP != nil {
		f.topP = float64(*p.TopP)
	}
	return f
}

// draw returns an index of weights, with probability in proportion to its weight among the tokens
// that the filter keeps. u is uniform in [0, 1). best is the index of the largest weight, which is
// 1.
func (f *filter) draw(weights []float32, best int, u float64) int {
	var total float64 // of what min_p keeps
	for _, w := range weights {
		if w >= f.minP {
			total += float64(w)
		}
	}
	cut := f.topK > 0 && f.topK < len(weights)
	if !cut && f.topP >= 1 {
		return f.drawAll(weights, best, u*total)
	}
	floor := f.minP
	if !cut {
		// Tokens so unlikely that all of them together are below the part that top_p drops need not
		// be sorted. The bound is halved as a margin for rounding.
		floor = max(floor, float32((1-f.topP)*total/float64(len(weights))/2))
	}
	f.collect(weights, floor)
	kept := f.candidates
	if cut && f.topK < len(kept) {
		keepLikeliest(kept, f.topK)
		kept = kept[:f.topK]
	}
	slices.SortFunc(kept, likelier)
	if cut {
		total = sum(kept)
	}
	if f.topP < 1 {
		kept = nucleus(kept, f.topP*total)
		total = sum(kept)
	}
	left := u * total
	for _, c := range kept {
		if left -= float64(c.weight); left < 0 {
			return int(c.id)
		}
	}
	return best // only by rounding
}

// drawAll is the rest of draw without top_k and top_p, where no candidates need to be collected.
func (f *filter) drawAll(weights []float32, best int, left float64) int {
	for i, w := range weights {
		if w < f.minP {
			continue
		}
		if left -= float64(w); left < 0 {
			return i
		}
	}
	return best // only by rounding
}

// collect fills f.candidates with the tokens whose weight is at least floor.
func (f *filter) collect(weights []float32, floor float32) {
	f.candidates = f.candidates[:0]
	for i, w := range weights {
		if w >= floor && w > 0 {
			f.candidates = append(f.candidates, candidate{w, uint32(i)})
		}
	}
}

// nucleus returns the shortest prefix with a total weight of at least mass, at least one candidate.
func nucleus(sorted []candidate, mass float64) []candidate {
	for i, c := range sorted {
		if mass -= float64(c.weight); mass <= 0 {
			return sorted[:i+1]
		}
	}
	return sorted
}

func sum(candidates []candidate) (total float64) {
	for _, c := range candidates {
		total += float64(c.weight)
	}
	return total
}

// keepLikeliest moves the k likeliest candidates to the front, in any order. It is Hoare's
// selection algorithm: linear time on average, where sorting would add a logarithmic factor.
func keepLikeliest(c []candidate, k int) {
	for lo, hi := 0, len(c)-1; lo < hi; {
		pivot := c[lo+(hi-lo)/2]
		i, j := lo, hi
		for i <= j {
			for likelier(c[i], pivot) < 0 {
				i++
			}
			for likelier(c[j], pivot) > 0 {
				j--
			}
			if i <= j {
				c[i], c[j] = c[j], c[i]
				i++
				j--
			}
		}
		switch {
		case k-1 <= j:
			hi = j
		case k-1 >= i:
			lo = i
		default:
			return
		}
	}
}

// uniform returns a number in [0, 1). It is written out because a seed must keep its meaning for
// longer than the standard library promises for its own conversions.
func uniform(random *rand.PCG) float64 { return float64(random.Uint64()>>11) / (1 << 53) }

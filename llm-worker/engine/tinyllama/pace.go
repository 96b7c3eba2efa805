package tinyllama

import "time"

// A stepPace bounds the prompt tokens of a step by the average times of the latest steps.
type stepPace struct {
	Token time.Duration // for each token, in steps that read prompts; 0 before the first
	Step  time.Duration // for a step without prompts; 0 before the first
}

const (
	// A chunk beside answering streams may lengthen their step by slowdown times its usual length,
	// but always by minBound, and never by more than maxBound. Without answering streams the bound is
	// aloneBound. New requests wait for the end of a step, and so do stops if other sequences have
	// tokens in it: a stop that reaches a worker through two hops has 190 ms of its grace left, and a
	// step takes longer than expected on a busy machine.
	slowdown   = 4
	minBound   = 4 * time.Millisecond
	maxBound   = 100 * time.Millisecond
	aloneBound = 100 * time.Millisecond

	// A smaller chunk wastes reads of the weights, and a larger one gains nothing.
	minChunk   = 16
	maxChunk   = 512
	firstChunk = 32 // while nothing is known
)

// Chunk returns the maximum number of prompt tokens of the next step.
func (p *stepPace) Chunk(answering bool) int {
	if p.Token <= 0 {
		return firstChunk
	}
	bound := aloneBound
	if answering {
		bound = min(max(slowdown*p.Step, minBound), maxBound)
	}
	return int(min(max(bound/p.Token, minChunk), maxChunk))
}

// Record notes the length of a step with this many tokens, of which some were of prompts.
func (p *stepPace) Record(tokens, prompt int, took time.Duration) {
	switch {
	case prompt == 0:
		p.Step = smooth(p.Step, took)
	case prompt >= minChunk:
		p.Token = smooth(p.Token, took/time.Duration(tokens))
	}
}

// smooth averages over about the last four values.
func smooth(average, next time.Duration) time.Duration {
	if average == 0 {
		return next
	}
	return average + (next-average)/4
}

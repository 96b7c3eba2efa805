package story

import streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"

// A TokenPace is how evenly tokens came in one direction, over the whole stream: the time to the first
// token since Began, and the gaps between messages with tokens.
type TokenPace struct {
	FirstMS   float64 `json:"first_ms"`
	P50MS     float64 `json:"p50_ms"`
	P95MS     float64 `json:"p95_ms"`
	LongestMS float64 `json:"longest_ms"`
}

func newTokenPace(p *streamv1.TokenPace) *TokenPace {
	if p == nil {
		return nil
	}
	return &TokenPace{ms(p.GetFirst().AsDuration()), ms(p.GetP50().AsDuration()), ms(p.GetP95().AsDuration()), ms(p.GetLongest().AsDuration())}
}

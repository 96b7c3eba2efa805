package story

import (
	"fmt"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

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

// text returns the pace in words. A hop that got a slow pace from below is not the slow one.
func (p *TokenPace) text() string {
	if p.LongestMS == 0 { // there was one message with tokens
		return fmt.Sprintf("first token after %.1f ms", p.FirstMS)
	}
	return fmt.Sprintf("first token after %.1f ms; gaps: p50 %.1f ms, p95 %.1f ms, longest %.1f ms", p.FirstMS, p.P50MS, p.P95MS, p.LongestMS)
}

package ledger

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/tally"
)

// pace returns the pace of the tokens of one direction, whose first token was at first. It returns
// nil before the first token.
func pace(s *tally.Side, first time.Duration) *streamv1.TokenPace {
	if first == 0 {
		return nil
	}
	return &streamv1.TokenPace{
		First: durationpb.New(first), P50: durationpb.New(s.Quantile(0.5)), P95: durationpb.New(s.Quantile(0.95)), Longest: durationpb.New(s.Longest),
	}
}

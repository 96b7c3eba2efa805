package main

import (
	"context"
	"iter"
	"log/slog"
	"strings"
	"time"

	examplev1 "github.com/whence-dev/whence/idl/gen/whence/example/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/stream"
)

// pace is the time that the model takes for a word.
const pace = 20 * time.Millisecond

// model returns an engine that repeats the question, word by word, without an end. It stops at once
// when its stream is stopped, and logs why.
func model(log *slog.Logger) answerer {
	return stream.Push(func(ctx context.Context, q *examplev1.Question) iter.Seq2[*examplev1.AskResponse, error] {
		return func(yield func(*examplev1.AskResponse, error) bool) {
			words := strings.Fields(q.GetText())
			if len(words) == 0 {
				yield(&examplev1.AskResponse{Message: &examplev1.AskResponse_End{End: &streamv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}, nil)
				return
			}
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-tick.C:
				case <-stream.Stopping(ctx):
					log.Info("the model has stopped", "words", n, "cause", stream.Cause(ctx).Error())
					yield(nil, stream.Cause(ctx))
					return
				}
				if !yield(&examplev1.AskResponse{Message: &examplev1.AskResponse_Word{Word: words[n%len(words)]}}, nil) {
					return
				}
			}
		}
	})
}

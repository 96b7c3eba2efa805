package route

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// failing returns a worker that fails with reason after at tokens and a pause.
func failing(name string, at int, pause time.Duration, reason streamerr.Reason) *fake {
	return &fake{name: name, fault: func(tokens int) error {
		if tokens != at {
			return nil
		}
		time.Sleep(pause)
		return &streamerr.Error{Reason: reason, Path: streamerr.NewPath("engine", name), Message: "as scripted"}
	}}
}

func TestFailureOfTheWorkerInMidStreamMoves(t *testing.T) {
	for reason, moves := range map[streamerr.Reason]bool{
		streamerr.EngineFailed: true, streamerr.Internal: true, streamerr.Unavailable: true, streamerr.PeerLost: true, streamerr.Draining: true,
		streamerr.Deadline: true, streamerr.Overloaded: true,
		streamerr.Invalid: false, streamerr.NotFound: false, streamerr.OperatorStop: false,
	} {
		for _, kind := range []string{"exact", "gpu"} {
			t.Run(fmt.Sprint(reason, " ", kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, b := failing("w/0", 4, time.Second, reason), &fake{name: "w/1"}
					p := poolOf(t, Options{Policy: inOrder, Migrations: 3}, a, b)
					makeOf(p, kind, kind)
					req := ask(9)
					req.Sampling.Seed = nil
					got := read(t.Context(), p, req, nil)
					if !moves {
						got.failed(t, reason, "engine > w/0")
						return
					}
					if got.err != nil || len(got.tokens) != 9 || len(b.asked) != 1 || b.asked[0].GetGenerated() != 4 {
						t.Error(len(got.tokens), got.err, b.asked)
					}
				})
			})
		}
	}
}

// Resuming a guided answer as text would restart its grammar: {"name":"Paris{"name":"Paris", ...
func TestGuidedStreamMovesOnlyToExactWorkers(t *testing.T) {
	for kind, moves := range map[string]bool{"exact": true, "gpu": false} {
		synctest.Test(t, func(t *testing.T) {
			a, b := failing("w/0", 4, 0, streamerr.PeerLost), &fake{name: "w/1"}
			p := poolOf(t, Options{Policy: inOrder, Migrations: 3}, a, b)
			makeOf(p, kind+" guide", kind+" guide")
			req := ask(9)
			req.Sampling = &llmv1.Sampling{MaxTokens: proto.Uint32(9), Guide: &llmv1.Guide{}}
			got := read(t.Context(), p, req, nil)
			if moves != (got.err == nil) || moves != (len(b.asked) == 1) {
				t.Error(kind, got.err, len(b.asked))
			}
		})
	}
}

package route

import (
	"fmt"
	"strings"
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

// A worker's limit on the whole stream is not a silence, so its DEADLINE must not cause a move.
func TestDeadlineWhileTokensFlowIsTheEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failing("w/0", 4, 0, streamerr.Deadline), &fake{name: "w/1"}
		read(t.Context(), poolOf(t, Options{Policy: inOrder, Migrations: 3}, a, b), ask(9), nil).failed(t, streamerr.Deadline, "engine > w/0")
	})
}

// The client gets the first loss, not the next worker's refusal of the move.
func TestFirstLossIsTheEnding(t *testing.T) {
	for name, c := range map[string]struct {
		first, second *fake
		reason        streamerr.Reason
		detail        string
	}{
		"a move is refused":         {failing("w/0", 4, 0, streamerr.PeerLost), failing("w/1", -1, 0, streamerr.Invalid), streamerr.PeerLost, "; then w/1: invalid, as scripted"},
		"a retry is refused":        {failing("w/0", -1, 0, streamerr.Overloaded), failing("w/1", -1, 0, streamerr.Invalid), streamerr.Overloaded, "; then w/1: invalid, as scripted"},
		"two engines die":           {failing("w/0", 4, 0, streamerr.EngineFailed), failing("w/1", 4, 0, streamerr.EngineFailed), streamerr.EngineFailed, "; then w/1: engine_failed, as scripted"},
		"lost before anything came": {failing("w/0", -1, 0, streamerr.PeerLost), failing("w/1", -1, 0, streamerr.Invalid), streamerr.Unavailable, "; then w/1: invalid, as scripted"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := read(t.Context(), poolOf(t, Options{Policy: inOrder, Migrations: 3}, c.first, c.second), ask(9), nil)
				got.failed(t, c.reason, "engine > w/0")
				if e := streamerr.As(got.err); !strings.HasSuffix(e.Message, c.detail) {
					t.Errorf("%q does not end with %q", e.Message, c.detail)
				}
			})
		})
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

// A full worker is asked again with a backoff, and the pauses cost no moves.
func TestFullWorkerIsRetriedWithBackoffInMidStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failing("w/0", 4, 0, streamerr.PeerLost), &fake{name: "w/1"}
		free := time.Now().Add(5 * time.Second)
		b.fault = func(tokens int) error {
			if tokens == -1 && time.Now().Before(free) {
				return &streamerr.Error{Reason: streamerr.Overloaded, Path: streamerr.NewPath("w/1"), RetryAfter: time.Second}
			}
			return nil
		}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 1}, a, b)
		got := read(t.Context(), p, ask(9), nil)
		if got.err != nil || len(got.tokens) != 9 || len(b.asked) > 6 || got.took > 9*time.Second {
			t.Error(len(got.tokens), got.err, len(b.asked), got.took)
		}
	})
}

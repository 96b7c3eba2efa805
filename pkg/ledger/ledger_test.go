package ledger_test

import (
	"fmt"
	"sync"
	"testing"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestRecordTellsTheStoryOfAStop(t *testing.T) {
	var l ledger.Ledger
	r := l.Open("a", "chat", "peer:1")
	r.Started(&streamv1.Started{Model: "m", PromptTokens: 7})
	r.Leaves("linger:30s")
	r.In(5)
	r.Out(4)
	r.Confirmed() // nobody asked yet
	gone := &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client", "edge"), Message: "gone"}
	r.Stopping(gone)
	r.Stopping(&streamerr.Error{Reason: streamerr.Deadline})
	p := l.Get("a")
	if p.GetState() != streamv1.State_STATE_STOPPED || p.GetReason() != streamv1.Reason_REASON_CLIENT_GONE || len(p.GetPath()) != 3 || p.GetStopConfirmed() != nil {
		t.Error(p)
	}
	r.Confirmed()
	r.Close(streamerr.ClientGone, streamerr.NewPath("client", "edge", "chat"), "gone")
	r.Close(streamerr.Completed, nil, "again")
	p = l.Get("a")
	if p.GetState() != streamv1.State_STATE_ENDED || p.GetReason() != streamv1.Reason_REASON_CLIENT_GONE || p.GetStopConfirmed() == nil ||
		p.GetTokensIn() != 5 || p.GetTokensOut() != 4 || p.GetModel() != "m" || p.GetPromptTokens() != 7 || p.GetPeer() != "peer:1" || p.GetLeave() != "linger:30s" {
		t.Error(p)
	}
	if l.Total() != 1 || len(l.Live()) != 0 {
		t.Error(l.Total(), l.Live())
	}
}

func TestRecordListsMovesInOrder(t *testing.T) {
	var l ledger.Ledger
	r := l.Open("a", "chat", "")
	r.Moved("worker/0", "worker/1", streamerr.PeerLost, 0)
	before := l.Get("a")
	r.Moved("worker/1", "worker/0", streamerr.Draining, 7)
	moves := l.Get("a").GetMoves()
	if len(before.GetMoves()) != 1 || len(moves) != 2 || moves[0].GetTo() != "worker/1" || moves[0].GetReason() != streamv1.Reason_REASON_PEER_LOST ||
		moves[1].GetFrom() != "worker/1" || moves[1].GetTokens() != 7 || moves[1].GetAt().AsTime().Before(moves[0].GetAt().AsTime()) {
		t.Error(before, moves)
	}
}

func TestOnlyTheLastEndingsAreKept(t *testing.T) {
	l := ledger.Ledger{Max: 10}
	live := l.Open("live", "hop", "")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				l.Open(fmt.Sprintf("%d-%d", i, j), "hop", "").Close(streamerr.Completed, nil, "")
			}
		})
	}
	wg.Wait()
	kept := 0
	for i := range 8 {
		for j := range 100 {
			if l.Get(fmt.Sprintf("%d-%d", i, j)) != nil {
				kept++
			}
		}
	}
	if kept != 10 || l.Total() != 800 || l.Get("live") == nil || len(l.Live()) != 1 {
		t.Error(kept, l.Total(), l.Live())
	}
	live.Close(streamerr.Completed, nil, "")
}

func TestReusedIDIsTheNewStreams(t *testing.T) {
	l := ledger.Ledger{Max: 1}
	l.Open("a", "hop", "first").Close(streamerr.Completed, nil, "")
	second := l.Open("a", "hop", "second")
	l.Open("b", "hop", "").Close(streamerr.Completed, nil, "") // pushes the first "a" out
	if p := l.Get("a"); p.GetPeer() != "second" {
		t.Error(p)
	}
	second.Close(streamerr.Completed, nil, "")
}

func TestNilRecordTakesEverything(t *testing.T) {
	r := ledger.Of(t.Context())
	r.Started(nil)
	r.Leaves("")
	r.In(1)
	r.Out(1)
	r.Moved("a", "b", streamerr.PeerLost, 1)
	r.Stopping(&streamerr.Error{})
	r.Confirmed()
	r.Close(streamerr.Completed, nil, "")
}

package ledger_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestRecordOfAStop(t *testing.T) {
	var l ledger.Ledger
	r := l.Open("a", "chat", "peer:1")
	r.Started(&llmv1.Started{Model: "m", PromptTokens: 7})
	r.Leaves("linger:30s")
	r.In(5)
	r.Sent(4, nil)
	r.Confirmed() // ignored: no stop was requested yet
	gone := &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client", "edge"), Message: "gone"}
	r.Stopping(gone)
	r.Stopping(&streamerr.Error{Reason: streamerr.Deadline})
	p := l.Get("a")
	if p.GetState() != streamv1.State_STATE_STOPPED || p.GetReason() != streamv1.Reason_REASON_CLIENT_GONE || len(p.GetPath()) != 3 || p.GetStopConfirmed() != nil {
		t.Error(p)
	}
	if p.CachedTokens != nil {
		t.Error("the record of an incomplete answer has cached tokens:", p)
	}
	r.Used(nil)
	r.Used(&llmv1.Usage{CachedTokens: new(uint32(3))})
	r.Confirmed()
	r.End(streamerr.ClientGone, streamerr.NewPath("client", "edge", "chat"), "gone")
	r.End(streamerr.Completed, nil, "again")
	p = l.Get("a")
	if p.GetState() != streamv1.State_STATE_ENDED || p.GetReason() != streamv1.Reason_REASON_CLIENT_GONE || p.GetStopConfirmed() == nil ||
		p.GetTokensIn() != 5 || p.GetCachedTokens() != 3 || p.GetTokensOut() != 4 || p.GetModel() != "m" || p.GetPromptTokens() != 7 || p.GetPeer() != "peer:1" || p.GetLeave() != "linger:30s" {
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
				l.Open(fmt.Sprintf("%d-%d", i, j), "hop", "").End(streamerr.Completed, nil, "")
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
	live.End(streamerr.Completed, nil, "")
}

func TestEndedAreNewestFirst(t *testing.T) {
	l := ledger.Ledger{Max: 4}
	ids := func(limit int, want func(*streamv1.Record) bool) (ids string) {
		for _, r := range l.Ended(limit, want) {
			ids += r.GetStreamId() + " "
		}
		return ids
	}
	all := func(*streamv1.Record) bool { return true }
	stopped := func(r *streamv1.Record) bool { return r.GetReason() == streamv1.Reason_REASON_USER_STOP }
	if got := ids(9, all); got != "" {
		t.Errorf("of none: %q", got)
	}
	l.Open("live", "hop", "")
	for i := range 7 { // once around the ring, and on
		reason := streamerr.Completed
		if i%2 == 0 {
			reason = streamerr.UserStop
		}
		l.Open(fmt.Sprint(i), "hop", "").End(reason, nil, "")
		if i == 2 {
			if got := ids(9, all); got != "2 1 0 " {
				t.Errorf("before the ring is full: %q", got)
			}
		}
	}
	for _, test := range []struct {
		limit int
		want  func(*streamv1.Record) bool
		ids   string
	}{{9, all, "6 5 4 3 "}, {2, all, "6 5 "}, {0, all, ""}, {9, stopped, "6 4 "}, {1, stopped, "6 "}} {
		if got := ids(test.limit, test.want); got != test.ids {
			t.Errorf("at most %d: %q, want %q", test.limit, got, test.ids)
		}
	}
}

// TestStreamsThatAreNotLiveHaveEnded checks that no stream is missing from both lists while it ends.
func TestStreamsThatAreNotLiveHaveEnded(t *testing.T) {
	for i := range 2000 {
		var l ledger.Ledger
		r := l.Open("a", "hop", "")
		var wg sync.WaitGroup
		wg.Go(func() { r.End(streamerr.Completed, nil, "") })
		for len(l.Live()) > 0 {
			runtime.Gosched()
		}
		if len(l.Ended(1, func(*streamv1.Record) bool { return true })) == 0 {
			t.Fatalf("stream %d is neither live nor ended", i)
		}
		wg.Wait()
	}
}

func TestReusedIDRefersToTheNewStream(t *testing.T) {
	l := ledger.Ledger{Max: 1}
	l.Open("a", "hop", "first").End(streamerr.Completed, nil, "")
	second := l.Open("a", "hop", "second")
	l.Open("b", "hop", "").End(streamerr.Completed, nil, "") // evicts the first "a"
	if p := l.Get("a"); p.GetPeer() != "second" {
		t.Error(p)
	}
	second.End(streamerr.Completed, nil, "")
}

func TestNilRecordAcceptsAllCalls(t *testing.T) {
	r := ledger.Of(t.Context())
	r.Started(nil)
	r.Read(&workerv1.EmbedResponse{Model: "m"})
	r.Note(observer.Event{})
	r.Leaves("")
	r.In(1)
	r.Sent(1, nil)
	r.Moved("a", "b", streamerr.PeerLost, 1)
	r.Stopping(&streamerr.Error{})
	r.Confirmed()
	r.End(streamerr.Completed, nil, "")
}

// TestRecordReadsMessagesAboutLanguageModels: an admission, an ending and a unary answer have the
// model and the tokens; other messages are ignored.
func TestRecordReadsMessagesAboutLanguageModels(t *testing.T) {
	usage := &llmv1.Usage{PromptTokens: 9, CachedTokens: new(uint32(4))}
	for name, messages := range map[string][]any{
		"stream": {
			&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{Model: "m", PromptTokens: 7}}},
			&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{}},
			&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Usage: usage}}},
		},
		"unary": {&workerv1.EmbedResponse{Model: "m", End: &llmv1.End{Usage: usage}}},
	} {
		var l ledger.Ledger
		r := l.Open("a", "hop", "")
		for _, msg := range append(messages, &streamv1.End{}, nil) {
			r.Read(msg)
		}
		if p := l.Get("a"); p.GetModel() != "m" || p.GetPromptTokens() != 9 || p.GetCachedTokens() != 4 {
			t.Error(name, p)
		}
		r.End(streamerr.Completed, nil, "")
	}
}

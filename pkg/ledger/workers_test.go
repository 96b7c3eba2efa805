package ledger_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestRecordNamesTheWorkersThatHaveAnswered covers a move between chat-services, which are no
// workers, and a worker that only the path of the ending names.
func TestRecordNamesTheWorkersThatHaveAnswered(t *testing.T) {
	var l *ledger.Ledger
	got := usageRecords(t, func(of *ledger.Ledger) {
		l = of
		r, _ := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "api-service", First: true}).(*ledger.Record)
		r.Started(&llmv1.Started{Model: "m", Worker: "llm-worker/0"})
		r.Moved("chat-service/0", "chat-service/1", streamerr.PeerLost, 3)
		r.AnsweredBy("llm-worker/1")
		r.AnsweredBy("")
		if live := l.Get("a").GetWorkers(); !slices.Equal(live, []string{"llm-worker/0", "llm-worker/1"}) {
			t.Errorf("live: %v", live)
		}
		r.End(streamerr.Completed, streamerr.NewPath("engine", "llm-worker/2", "chat-service/1", "api-service"), "")
		r.Close()
	})
	if workers := l.Get("a").GetWorkers(); !slices.Equal(workers, []string{"llm-worker/0", "llm-worker/1", "llm-worker/2"}) {
		t.Error(workers)
	}
	if len(got) != 1 || got[0].Worker != "llm-worker/2" {
		t.Errorf("%+v", got)
	}
}

// TestChatServiceIsNotTheWorkerOfAMovedStream: a client that leaves after a move still names the
// worker in its usage record.
func TestChatServiceIsNotTheWorkerOfAMovedStream(t *testing.T) {
	got := usageRecords(t, func(l *ledger.Ledger) {
		r, _ := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "api-service", First: true}).(*ledger.Record)
		note(r, observer.Calling)
		r.Started(&llmv1.Started{Model: "m", Worker: "llm-worker/0"})
		r.Moved("chat-service/0", "chat-service/1", streamerr.PeerLost, 3)
		r.End(streamerr.ClientGone, streamerr.NewPath("client", "api-service"), "")
		r.Close()
	})
	if len(got) != 1 || got[0].Worker != "llm-worker/0" {
		t.Errorf("%+v", got)
	}
}

func TestWorkersOfARecordAreBounded(t *testing.T) {
	l, r := traced(1)
	for i := range 100 {
		r.AnsweredBy(fmt.Sprint("w/", i))
		r.AnsweredBy(fmt.Sprint("w/", i)) // again
	}
	if n := len(l.Get("a").GetWorkers()); n != 16 {
		t.Errorf("%d workers", n)
	}
}

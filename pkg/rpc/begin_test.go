package rpc_test

import (
	"sync"
	"testing"

	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// TestRecordIsCompleteOnceItIsFound requests records while their streams begin. The race detector
// reports a record that changes after it was found.
func TestRecordIsCompleteOnceItIsFound(t *testing.T) {
	m, err := metrics.New("test")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(t.Context())
	hop := &rpc.Hop{Name: "hop", Observer: &ledger.Ledger{Metrics: m.Hop("hop", metrics.Chat), Traces: &streamtrace.Tracer{}}}
	begun := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			_ = ledger.At(hop).Get("one")
			_ = ledger.At(hop).Live()
			select {
			case <-begun:
				return
			default:
			}
		}
	})
	for range 100 {
		id := "one"
		_, end, err := hop.Begin(t.Context(), &id, "", "", func() *streamerr.Error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		end()
	}
	close(begun)
	asking.Wait()
}

package ledger_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/observer"
)

// TestRecordDoesNotKeepTheMetadataOfItsCall: the metadata has the size of all headers, and the
// caller's credentials.
func TestRecordDoesNotKeepTheMetadataOfItsCall(t *testing.T) {
	freed := make(chan struct{})
	header := func() func(string) []string {
		values := &[]string{"Bearer secret", "some more"}
		runtime.AddCleanup(values, func(freed chan struct{}) { close(freed) }, freed)
		return func(string) []string { return *values }
	}
	l := &ledger.Ledger{}
	flow := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "chat", Owner: "me", Header: header()})
	for range 1000 {
		runtime.GC()
		select {
		case <-freed:
			runtime.KeepAlive(flow)
			return
		case <-time.After(time.Millisecond):
		}
	}
	runtime.KeepAlive(flow)
	t.Error("the record keeps the headers of its call")
}

package connection_test

import (
	"bufio"
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/connection"
)

// TestContextOfAConnectionEndsWithIt: when the client closes the connection, its context is done, and
// so are contexts derived from it. All functions that watch them run, except those withdrawn.
func TestContextOfAConnectionEndsWithIt(t *testing.T) {
	ctxs := make(chan context.Context, 1)
	addr := startWith(t, &connection.Server{Arrival: time.Hour, Idle: time.Hour}, func(ctx context.Context) { ctxs <- ctx }, say)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, conn, bufio.NewReader(conn))
	ctx := <-ctxs
	type name struct{}
	valued := context.WithValue(ctx, name{}, "any")
	timed, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	short, end := context.WithCancel(ctx)
	ran := make(chan string, 9)
	for what, from := range map[string]context.Context{"the connection": ctx, "with a value": valued, "with a timeout": timed} {
		connection.AfterLeft(from, func() { ran <- what })
		context.AfterFunc(from, func() { ran <- what })
	}
	before := runtime.NumGoroutine()
	for range 10 {
		_, cancel := context.WithCancel(valued)
		defer cancel()
	}
	if n := runtime.NumGoroutine() - before; n > 5 { // other goroutines of the server come and go
		t.Errorf("10 derived contexts need %d goroutines", n)
	}
	undo := connection.AfterLeft(ctx, func() { ran <- "withdrawn" })
	if !undo() || undo() {
		t.Error("undo does not say whether it was in time")
	}
	connection.AfterLeft(short, func() { ran <- "canceled" })
	end()
	if got := <-ran; got != "canceled" {
		t.Errorf("%s ran first", got)
	}
	if ctx.Err() != nil {
		t.Error(ctx.Err())
	}
	_ = conn.Close()
	<-timed.Done()
	<-ctx.Done()
	counts := map[string]int{}
	for range 6 {
		counts[<-ran]++
	}
	if len(counts) != 3 || counts["withdrawn"] > 0 || ctx.Err() != context.Canceled {
		t.Error(counts, ctx.Err())
	}
	connection.AfterLeft(ctx, func() { ran <- "late" })
	if got := <-ran; got != "late" {
		t.Error(got)
	}
}

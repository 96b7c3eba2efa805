package kitexstream_test

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/cloudwego/kitex/client"
	"golang.org/x/net/http2"

	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// TestAMessageThatCannotBeReadIsNotACompletion: the callee's trailer says that the stream has
// completed, but this hop cannot decode the last message.
func TestAMessageThatCannotBeReadIsNotACompletion(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{}, 2)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { sent <- struct{}{} }()
		_, _ = io.Copy(io.Discard, r.Body) // an earlier answer would make the caller's Send fail, and it would not read
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Whence-End-Reason, Whence-End-Path")
		_, _ = w.Write([]byte{0, 0, 0, 0, 3, 0xff, 0xff, 0xff}) // no protobuf
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set("Whence-End-Reason", "completed")
		w.Header().Set("Whence-End-Path", "callee")
	})
	var serving sync.WaitGroup
	serving.Add(1)
	go func() {
		defer serving.Done()
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Add(1)
			go func() {
				defer serving.Done()
				new(http2.Server).ServeConn(conn, &http2.ServeConnOpts{Handler: handler})
			}()
			defer conn.Close()
		}
	}()
	defer serving.Wait()
	defer ln.Close()
	caller := newHop(t, "caller", func(c *monitor.Config) { c.Ratio = 1 })
	dial := dialGRPC(t, ln.Addr().String(), watching(caller), client.WithGRPCConnPoolSize(1))
	st, err := dial(kitextest.Context(t))
	<-sent
	// When a later stream of the connection is read, the trailer of this one has arrived.
	later, lateErr := dial(kitextest.Context(t))
	if err := readAll(kitextest.Context(t), later, lateErr); err == nil {
		t.Error("the reader of the later stream got no error")
	}
	if err := readAll(kitextest.Context(t), st, err); err == nil {
		t.Error("the reader got no error")
	}
	records := caller.ended(t)
	if len(records) != 2 {
		t.Fatalf("there are %d records, not 2", len(records))
	}
	for _, s := range records {
		if s.Reason.String() == streamerr.Completed.String() {
			t.Errorf("the ending is %s, path %s", s.Reason.String(), s.Path.String())
		}
	}
}

package kitexstream_test

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client"

	"github.com/whence-dev/whence/contrib/kitexstream"
	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestAMessageThatCannotBeReadIsNotACompletion: the callee's trailer says that the stream has
// completed, but this hop cannot decode the last message.
func TestAMessageThatCannotBeReadIsNotACompletion(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{}, 2)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { sent <- struct{}{} }()
		_, _ = io.Copy(io.Discard, r.Body) // an earlier answer would make the caller's Send fail, and it would not read
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Whence-End-Reason, Whence-End-Path")
		_, _ = w.Write([]byte{0, 0, 0, 0, 3, 0xff, 0xff, 0xff}) // no protobuf
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set("Whence-End-Reason", "completed")
		w.Header().Set("Whence-End-Path", "callee")
	})}
	srv.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(ln) })
	defer serving.Wait()
	defer srv.Close()
	caller := newHop(t, "caller", func(c *telemetry.Config) { c.Ratio = 1 })
	dial := dialGRPC(t, ln.Addr().String(), client.WithSuite(kitexstream.Client(caller.Monitor)), client.WithGRPCConnPoolSize(1))
	st, err := dial(t.Context())
	<-sent
	// When a later stream of the connection is read, the trailer of this one has arrived.
	later, lateErr := dial(t.Context())
	if err := readAll(t.Context(), later, lateErr); err == nil {
		t.Error("the reader of the later stream got no error")
	}
	if err := readAll(t.Context(), st, err); err == nil {
		t.Error("the reader got no error")
	}
	spans := caller.ended(t)
	if len(spans) != 2 {
		t.Fatalf("there are %d spans, not 2", len(spans))
	}
	for i := range spans {
		if s := &spans[i]; attr(s, "whence.reason") == streamerr.Completed.String() {
			t.Errorf("the ending is %s, path %s", attr(s, "whence.reason"), attr(s, "whence.path"))
		}
	}
}

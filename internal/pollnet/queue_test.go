package pollnet

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/cloudwego/netpoll"
)

// TestQueueServesConnectionsThatAnotherServerHasAccepted runs a server of netpoll on a Queue.
func TestQueueServesConnectionsThatAnotherServerHasAccepted(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	q, err := NewQueue(ln.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer q.Release()
	loop, err := netpoll.NewEventLoop(func(_ context.Context, conn netpoll.Connection) error {
		b, err := conn.Reader().Next(conn.Reader().Len())
		if err != nil {
			return err
		}
		_, err = conn.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- loop.Serve(q) }()
	<-q.Ready()
	for range 10 {
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Hand(accepted); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(client, "echo"); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(client, got); err != nil || string(got) != "echo" {
			t.Errorf("%q, %v", got, err)
		}
		_ = client.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := loop.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	<-served
	late, theirs := net.Pipe()
	defer theirs.Close()
	if err := q.Hand(late); err == nil {
		t.Error("a connection without a descriptor was taken")
	}
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Hand(accepted); !errors.Is(err, net.ErrClosed) {
		t.Error("a queue whose server has ended took a connection:", err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error("the refused connection is open:", err)
	}
}

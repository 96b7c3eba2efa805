package kitexrpc_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

// hangUp serves connections that it ends at once, until the test ends.
func hangUp(t *testing.T, end func(*net.TCPConn)) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			end(conn.(*net.TCPConn))
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		serving.Wait()
	})
	return ln.Addr().String()
}

func TestPeerThatHangsUpBeforeItsFirstByteIsLostAtOnce(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){
		"FIN": func(c *net.TCPConn) { _ = c.Close() },
		"RST": func(c *net.TCPConn) { _, _ = c.SetLinger(0), c.Close() },
		"FIN, then": func(c *net.TCPConn) { // after the client's first byte
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		},
		"half": func(c *net.TCPConn) { _, _ = c.CloseWrite(), c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			for range 25 {
				cc, err := kitexrpc.Dial(hangUp(t, end), &chatv1.Chat_ServiceDesc)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // shorter than the 25 s of keep-alive
				st, err := chatv1.NewChatClient(cc).Generate(ctx)
				if err == nil {
					_ = st.Send(&chatv1.GenerateRequest{})
					_, err = st.Recv()
				}
				if err == nil || ctx.Err() != nil {
					t.Errorf("%v, %v", err, ctx.Err())
				}
				cancel()
				_ = cc.Close()
			}
		})
	}
}

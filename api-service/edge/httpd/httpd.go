// Package httpd runs a Hertz server until an orderly shutdown.
package httpd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/cloudwego/hertz/pkg/app/server"
)

// StopWait bounds the wait for clients to close their connections after all requests have been
// answered.
const StopWait = 600 * time.Millisecond

// startWait bounds the wait for a server that must stop while it starts.
const startWait = 5 * time.Second

// Run runs h, which serves ln, until ctx is done. Then it calls drain, which returns how long
// connections may take to close, and shuts h down.
func Run(ctx context.Context, h *server.Hertz, ln net.Listener, drain func() (goodbye time.Duration), log *slog.Logger) error {
	failed := make(chan error, 1)
	go func() { failed <- h.Run() }()
	select {
	case err := <-failed:
		return fmt.Errorf("http server: %w", err)
	case <-ctx.Done():
	}
	goodbye := drain()
	if err := answering(ln.Addr(), failed); err != nil {
		return fmt.Errorf("http server: %w", err)
	}
	waiting, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	if err := h.Shutdown(waiting); err != nil {
		return fmt.Errorf("http server: %w", err)
	}
	if err := <-failed; err != nil {
		log.Debug("http server has stopped", "err", err) // the error of a closed listener
	}
	return nil
}

// answering waits until the server at addr answers: Hertz cannot be shut down while it starts, and
// reports that it runs before it listens.
func answering(addr net.Addr, failed <-chan error) error {
	conn, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(startWait))
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		_, _ = conn.Read(make([]byte, 1)) // an answer, or the end of the connection
	}()
	select {
	case err = <-failed:
	case <-answered:
	}
	_ = conn.Close() // ends the goroutine
	<-answered
	return err
}

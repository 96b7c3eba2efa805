// Package gateway is api-service and chat-service in one process, in front of llm-workers.
//
// The two hops are joined by function calls (package inprocess): the goroutine that receives a
// token from a worker also writes it to the client. They remain two hops: paths, records, logs,
// metrics and traces have both names, and endings are those of two processes. The process drains
// api-service first, and then chat-service.
//
// With Config.Worker there is also a worker for each model server, which chat-service calls within the
// process: see Upstreams.
package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/api-service/edge/chats"
	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/pkg/drain"
	"github.com/whence-dev/whence/pkg/rpc/inprocess"
)

// chatTarget stands for the address of the chat-service in api-service's log lines.
const chatTarget = "in-process:0"

// Run serves HTTP on front, and gRPC callers of chat-service on c.ChatListen if it is not empty,
// until ctx is done and the streams have drained. A failure of one service ends the other.
func Run(ctx context.Context, c Config, front net.Listener, log *slog.Logger) error {
	c.Edge.Chat = chatTarget
	if err := c.Validate(); err != nil {
		return err
	}
	c.separate()
	var back net.Listener // nil without gRPC callers
	if c.ChatListen != "" {
		var err error
		if back, err = net.Listen("tcp", c.ChatListen); err != nil {
			return fmt.Errorf("--chat-listen: %w", err)
		}
		log.Info("listening for gRPC callers", "addr", back.Addr().String())
	}
	var upstreams *Upstreams // nil without workers in this process
	if c.Worker.Upstream.Upstream != "" {
		upstreams = c.upstreams()
		upstreams.Serve(&c.Chat)
	}
	serve := Join(&c.Edge, &c.Chat)
	services, all := errgroup.WithContext(ctx)
	edgeDone, chatDone := make(chan struct{}), make(chan struct{})
	services.Go(func() error {
		defer close(edgeDone)
		return serve(all, front, log)
	})
	services.Go(func() error {
		defer close(chatDone)
		return server.Run(drain.After(all, edgeDone), c.Chat, back, log)
	})
	if upstreams != nil {
		services.Go(func() error { return upstreams.Run(drain.After(all, chatDone), log) })
	}
	return services.Wait()
}

// Join makes api call chat within this process. serve is edge.Run of api, which begins once chat has loaded
// its models.
func Join(api *edge.Config, chat *server.Config) (serve func(context.Context, net.Listener, *slog.Logger) error) {
	ready := make(chan struct{})
	api.Chat = chatTarget
	chat.Local = func(conn *inprocess.Conn) {
		api.Connect = func(string) (chats.Conn, error) { return conn, nil }
		close(ready)
	}
	return func(ctx context.Context, front net.Listener, log *slog.Logger) error {
		select {
		case <-ready:
			return edge.Run(ctx, *api, front, log)
		case <-ctx.Done():
			return front.Close()
		}
	}
}

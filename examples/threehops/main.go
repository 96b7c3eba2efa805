// Command threehops shows package rpc around methods that are not Whence's own. Three hops talk
// over TLS: a front calls a middle over Kitex, and the middle calls a leaf over grpc-go. Two
// streams cross them, and the user leaves both:
//
//   - count.go has a bidi method designed for package rpc: its messages have room for a Stop
//     and an ending.
//   - watch.go has an existing server-streaming method, the Watch of grpc's health service: its
//     proto is unchanged, and a unary Stop beside it carries the cause.
//
// Each hop logs the ending of each stream, with the same reason and origin. hops.go creates and
// connects the hops, and certificate.go their certificates.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func main() {
	kitexrpc.LogTo(io.Discard)
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "threehops:", err)
		os.Exit(1)
	}
}

// run starts the hops, and reads both streams at the front.
func run(out io.Writer) (err error) {
	path, err := start(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, path.stop()) }()
	if err := read(out, path.front.count, goal(1000), number); err != nil {
		return err
	}
	return read(out, path.front.watch, service("leaf"), status)
}

// read ranges over a stream. The user leaves after five items.
func read[Req, Item any](out io.Writer, engine stream.Engine[Req, Item], req Req, text func(Item) string) error {
	ctx, control := stream.WithControl(context.Background(), rpc.DefaultGrace)
	defer control.Release()
	items := 0
	for item, err := range engine.Range(ctx, req) {
		if err != nil {
			_, err = fmt.Fprintf(out, "front: the stream ended: %v\n", err)
			return err
		}
		if _, err := fmt.Fprintln(out, "front: got", text(item)); err != nil {
			return err
		}
		if items++; items == 5 {
			control.Stop(&streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("user"), Message: "the user closed the tab"})
		}
	}
	return nil
}

package main

import (
	"errors"
	"io"
	"log/slog"
	"net"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	examplev1 "github.com/whence-dev/whence/idl/gen/whence/example/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/connloss"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/rpc/serverstream"
	"github.com/whence-dev/whence/pkg/stream"
)

// engines are the engines that a hop serves.
type engines struct {
	count counter
	watch watcher
}

// below returns the engines of the hop named peer, called over cc.
func below(self, peer string, cc grpc.ClientConnInterface) engines {
	return engines{count: countBelow(self, peer, cc), watch: watchBelow(self, peer, cc)}
}

// register registers the services of a hop.
func register(s grpc.ServiceRegistrar, hop *rpc.Hop, e engines) {
	examplev1.RegisterCountServer(s, &countServer{hop: hop, engine: e.count})
	healthpb.RegisterHealthServer(s, &watchServer{hop: hop, engine: e.watch})
	serverstream.RegisterControl(s, hop) // the Stop beside Watch
}

// A path is three hops. The front has no server.
type path struct {
	front   engines
	serving errgroup.Group
	stops   []func()
}

// start starts the hops, from the last to the first. Their logs go to out.
func start(out io.Writer) (*path, error) {
	p := &path{}
	if err := p.start(slog.New(slog.NewTextHandler(out, nil))); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *path) start(log *slog.Logger) error {
	servers, clients, err := certificates()
	if err != nil {
		return err
	}

	// The leaf: grpc-go. Sense distinguishes a caller that vanishes from one that resets its calls.
	leafAt, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	leaf := grpc.NewServer(grpc.Creds(connloss.Sense(credentials.NewTLS(servers))))
	register(leaf, &rpc.Hop{Name: "leaf", Log: log}, engines{count: stream.Push(count), watch: stream.Push(watch)})
	p.serving.Go(func() error { return leaf.Serve(leafAt) })
	p.stops = append(p.stops, leaf.Stop)
	toLeaf, err := grpc.NewClient(leafAt.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(clients)))
	if err != nil {
		return err
	}
	p.stops = append(p.stops, func() { _ = toLeaf.Close() })

	// The middle: a Kitex server, and a grpc-go client of the leaf.
	middleAt, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	middle := kitexrpc.NewServer()
	middle.Creds = credentials.NewTLS(servers)
	register(middle, &rpc.Hop{Name: "middle", Log: log}, below("middle", "leaf", toLeaf))
	p.serving.Go(func() error { return middle.Serve(middleAt) })
	p.stops = append(p.stops, middle.Stop)

	// The front: a Kitex client of the middle.
	toMiddle, err := kitexrpc.DialTLS(middleAt.Addr().String(), clients, &examplev1.Count_ServiceDesc, &healthpb.Health_ServiceDesc, &streamv1.StreamControl_ServiceDesc)
	if err != nil {
		return err
	}
	p.stops = append(p.stops, func() { _ = toMiddle.Close() })
	p.front = below("front", "middle", toMiddle)
	return nil
}

// stop stops the hops, from the first to the last. Their streams must have ended.
func (p *path) stop() error {
	for i := range p.stops {
		p.stops[len(p.stops)-1-i]()
	}
	return p.serving.Wait()
}

package kitexrpc_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

// Services and stubs that were generated for grpc-go run on Kitex unchanged. Here a Kitex client
// and a grpc-go client call grpc-go's own health service on a Kitex server.
func Example() {
	server := kitexrpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	addr := listener.Addr().String()

	overKitex, err := kitexrpc.Dial(addr, &healthpb.Health_ServiceDesc)
	if err != nil {
		panic(err)
	}
	overGRPC, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	for _, conn := range []grpc.ClientConnInterface{overKitex, overGRPC} {
		answer, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
		fmt.Println(answer.GetStatus(), err)
	}

	_, _ = overKitex.Close(), overGRPC.Close()
	server.Stop()
	fmt.Println("served until Stop:", <-served)
	// Output:
	// SERVING <nil>
	// SERVING <nil>
	// served until Stop: <nil>
}

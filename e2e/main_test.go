// Package e2e runs the commands as processes of their own and speaks to them over sockets, as users do: with the OpenAI
// SDKs, curl, grpcurl, gRPC clients and a browser.
//
// Every test starts what it needs on free ports of the loopback, in both topologies unless it is about one of them, and
// every process must end with status 0 when it is asked to. Nothing sleeps: tests await events, all within patience.
// Tests that need a tool which is not there are skipped, unless the environment says CI=true: there all must run.
//
// go test ./e2e -rewrite writes what the stories of testdata got as what they want, and the table of docs/endings.md.
package e2e

import (
	"flag"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

func TestMain(m *testing.M) {
	_ = flag.Set("datadriven-quiet", "true") // -v would print the stories
	kitexrpc.LogTo(io.Discard)               // of the Kitex client in this process
	goleak.VerifyTestMain(m,
		// What Kitex starts for its clients, and keeps when they are closed.
		goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"),
		goleak.IgnoreAnyFunction("github.com/cloudwego/kitex/pkg/loadbalance/lbcache.(*BalancerFactory).watcher"),
		goleak.IgnoreAnyFunction("github.com/cloudwego/kitex/pkg/utils.(*SharedTicker).Tick"),
		goleak.IgnoreAnyFunction("github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc.preallocateForStream"),
		goleak.IgnoreAnyFunction("github.com/cloudwego/kitex/client.(*timeoutPool).createTicker.func1"),
		goleak.IgnoreAnyFunction("github.com/cloudwego/kitex/client.(*timeoutPool).createWorker.func1"),
		goleak.IgnoreAnyFunction("github.com/bytedance/gopkg/util/gopool.(*worker).run.func1"), // of connections with TTHeader Streaming
		goleak.Cleanup(func(status int) {
			_ = os.RemoveAll(binDir) // in the temporary directory anyway
			os.Exit(status)
		}),
	)
}

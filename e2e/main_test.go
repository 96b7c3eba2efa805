// Package e2e runs the commands as separate processes and talks to them over sockets, as users do:
// with the OpenAI SDKs, curl, grpcurl, gRPC clients and a browser.
//
// Every test starts its processes on free loopback ports, one process per service unless the test is
// about another topology. The full tier runs most tests with all services in one process, too. Every
// process must end with status 0 on SIGTERM. Tests wait for events, within patience, and do not sleep.
//
// The tests run with CI=true, or if -run names some. A test whose tool is not installed is skipped,
// unless the environment has CI=true: then every test must run.
//
// go test ./e2e -run 'Stories|Table' -rewrite updates the expected results of the stories in testdata,
// and the tables of bench/endings.md and bench/clients.md.
//
// The directory habits has what clients send by default. A new client is a new file there: its requests as
// a proxy sees them, with texts, ids and paths replaced, and without a field that a user has set.
package e2e

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("CI") != "true" && flag.Lookup("test.run").Value.String() == "" {
		fmt.Println("e2e is skipped: scripts/test runs it, or CI=true go test ./e2e")
		return
	}
	_ = flag.Set("datadriven-quiet", "true") // -v would print the stories
	kitexrpc.LogTo(io.Discard)               // of the Kitex client in this process
	goleak.VerifyTestMain(m,
		// Goroutines that Kitex starts for its clients and keeps after they are closed.
		goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"),
		goleak.IgnoreAnyFunction("github.com/cloudwego/kitex/pkg/loadbalance/lbcache.(*BalancerFactory).watcher"),
		goleak.IgnoreAnyFunction("github.com/cloudwego/kitex/pkg/utils.(*SharedTicker).Tick"),
		goleak.IgnoreAnyFunction("github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc.preallocateForStream"),
		goleak.IgnoreAnyFunction("github.com/cloudwego/kitex/client.(*timeoutPool).createTicker.func1"),
		goleak.IgnoreAnyFunction("github.com/cloudwego/kitex/client.(*timeoutPool).createWorker.func1"),
		goleak.IgnoreAnyFunction("github.com/bytedance/gopkg/util/gopool.(*worker).run.func1"), // of connections with TTHeader Streaming
		goleak.Cleanup(func(status int) {
			_ = os.RemoveAll(binDir) // in the temporary directory anyway
			os.Exit(max(status, bounded()))
		}),
	)
}

// maxProcesses bounds the processes of services and servers that a run of the short tier starts: each
// costs a part of a second, on any machine. Bounds of other counts are in suite_test.go of the root.
const maxProcesses = 1000

// bounded prints how many processes this run has started, and returns 1 if they are too many for a whole
// run of the short tier.
func bounded() (status int) {
	n := lab.Launches()
	fmt.Printf("e2e has started %d processes\n", n)
	runs, err := strconv.Atoi(flag.Lookup("test.count").Value.String())
	if whole := flag.Lookup("test.run").Value.String() == "" && !tier.IsFull(); err != nil || !whole || n <= int64(maxProcesses*runs) {
		return 0
	}
	fmt.Printf("a run may start %d processes: let one owner of a fault play it, or let tests share their services\n", maxProcesses)
	return 1
}

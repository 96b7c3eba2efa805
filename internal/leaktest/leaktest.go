// Package leaktest fails a test binary that leaks goroutines, except for goroutines that the
// transports deliberately keep for the life of the process.
package leaktest

import "go.uber.org/goleak"

// ignored has the functions of goroutines that a library starts once per process, or once per
// client, and never ends. The services make one client per peer.
var ignored = []string{
	"github.com/cloudwego/netpoll.(*defaultPoll).Wait",
	"github.com/bytedance/gopkg/util/gopool.(*worker).run.func1",
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc.preallocateForStream",
	"github.com/cloudwego/kitex/pkg/loadbalance/lbcache.(*BalancerFactory).watcher",
	"github.com/cloudwego/kitex/pkg/loadbalance/lbcache.(*Balancer).refresh",
	"github.com/cloudwego/kitex/pkg/utils.(*SharedTicker).Tick",
	"github.com/cloudwego/kitex/pkg/utils.(*SharedTicker).syncExec",
	"github.com/cloudwego/kitex/client.(*timeoutPool).createTicker.func1",
	"github.com/cloudwego/kitex/client.(*timeoutPool).createWorker.func1",
	"github.com/cloudwego/hertz/pkg/app/client.(*Client).cleaner",
	"github.com/cloudwego/hertz/pkg/protocol.UpdateServerDate.func1",
	"github.com/cloudwego/hertz/pkg/protocol/http1.(*HostClient).connsCleaner",
}

// Main runs the tests of a package, usually a testing.M, and then looks for leaked goroutines; call it
// from TestMain.
func Main(m goleak.TestingM) {
	options := make([]goleak.Option, 0, len(ignored))
	for _, function := range ignored {
		options = append(options, goleak.IgnoreAnyFunction(function))
	}
	goleak.VerifyTestMain(m, options...)
}

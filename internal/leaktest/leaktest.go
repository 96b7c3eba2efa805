// Package leaktest fails a test binary that leaves goroutines behind, but for those that the transports keep for the life
// of a process on purpose.
package leaktest

import (
	"testing"

	"go.uber.org/goleak"
)

// kept are the functions of goroutines that a library starts once per process, or once per client and never ends; the
// services make one client per peer.
var kept = []string{
	"github.com/cloudwego/netpoll.(*defaultPoll).Wait",
	"github.com/bytedance/gopkg/util/gopool.(*worker).run.func1",
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc.preallocateForStream",
	"github.com/cloudwego/kitex/pkg/loadbalance/lbcache.(*BalancerFactory).watcher",
	"github.com/cloudwego/kitex/pkg/loadbalance/lbcache.(*Balancer).refresh",
	"github.com/cloudwego/kitex/pkg/utils.(*SharedTicker).Tick",
	"github.com/cloudwego/kitex/pkg/utils.(*SharedTicker).syncExec",
	"github.com/cloudwego/hertz/pkg/protocol.UpdateServerDate.func1",
}

// Main is a TestMain.
func Main(m *testing.M) {
	options := make([]goleak.Option, 0, len(kept))
	for _, function := range kept {
		options = append(options, goleak.IgnoreAnyFunction(function))
	}
	goleak.VerifyTestMain(m, options...)
}

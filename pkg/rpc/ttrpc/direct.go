package ttrpc

import (
	"context"
	"fmt"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/discovery"
	"github.com/cloudwego/kitex/pkg/proxy"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/rpcinfo/remoteinfo"
)

// Direct returns the option of a Kitex client that calls target, a host:port. Unlike
// client.WithHostPorts it does without Kitex's load balancer, which keeps a goroutine for each client
// for ever.
func Direct(target string) client.Option {
	return client.WithProxy(direct{discovery.NewInstance("tcp", target, discovery.DefaultWeight, nil)})
}

// direct is a proxy of Kitex that leads to one instance.
type direct struct{ to discovery.Instance }

var _ proxy.ForwardProxy = direct{}

// Configure implements proxy.ForwardProxy.
func (direct) Configure(*proxy.Config) error { return nil }

// ResolveProxyInstance implements proxy.ForwardProxy.
func (d direct) ResolveProxyInstance(ctx context.Context) error {
	remote := remoteinfo.AsRemoteInfo(rpcinfo.GetRPCInfo(ctx).To())
	if remote == nil {
		return fmt.Errorf("ttrpc: this Kitex has no remote information for %s", d.to.Address())
	}
	remote.SetInstance(d.to)
	return nil
}

package discover

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// resolveEvery is the maximum age of a DNS answer.
	resolveEvery = 5 * time.Second
	// askTimeout bounds one request to DNS or etcd.
	askTimeout = 3 * time.Second
	// retryEvery is the time between requests to a source that does not answer.
	retryEvery = time.Second
)

// A dns is a name that is resolved periodically. A headless Kubernetes service has one address per
// pod.
type dns struct {
	*net.Resolver
	name string
	port string // empty: the name's SRV records have the port
}

// resolver returns a resolver that asks server, or the system's resolver if server is "".
func resolver(server string) *net.Resolver {
	if server == "" {
		return net.DefaultResolver
	}
	if _, _, err := net.SplitHostPort(server); err != nil {
		server = net.JoinHostPort(server, "53")
	}
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server)
	}}
}

func (d dns) watch(ctx context.Context, _ []Target, _ func(string) bool, found func([]Target)) error {
	for {
		addrs, err := d.resolve(ctx)
		if err != nil {
			return err
		}
		found(targets(addrs))
		if !pause(ctx, resolveEvery) {
			return ctx.Err()
		}
	}
}

// resolve returns the addresses of the name. It returns an error if the name has no addresses: if a
// cluster restarts all processes at once, the old addresses are a better guess than none, and dead
// addresses get no streams anyway.
func (d dns) resolve(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var addrs []string
	if d.port == "" {
		_, records, err := d.LookupSRV(ctx, "", "", d.name)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			addrs = append(addrs, net.JoinHostPort(strings.TrimSuffix(r.Target, "."), strconv.Itoa(int(r.Port))))
		}
	} else {
		ips, err := d.LookupNetIP(ctx, "ip", d.name)
		if err != nil {
			return nil, err
		}
		for _, ip := range ips {
			addrs = append(addrs, net.JoinHostPort(ip.Unmap().String(), d.port))
		}
	}
	if len(addrs) == 0 {
		return nil, errors.New("the name has no addresses")
	}
	slices.Sort(addrs)
	return slices.Compact(addrs), nil
}

// pause waits for d, and reports whether ctx is still live.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

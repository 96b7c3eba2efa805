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
	// resolveEvery is how old an answer of DNS may be.
	resolveEvery = 5 * time.Second
	// askTimeout bounds one question, to DNS or to etcd.
	askTimeout = 3 * time.Second
	// retryEvery is how often a source is asked that did not answer.
	retryEvery = time.Second
)

// A dns is a name that is resolved again and again. A Kubernetes service without an address of its own has one for each of
// its pods.
type dns struct {
	*net.Resolver
	name string
	port string // empty: the name's SRV records say it
}

// resolver returns the system's, or one that asks server.
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

func (d dns) watch(ctx context.Context, _ []Target, found func([]Target)) error {
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

// resolve returns the addresses of the name. A name without any is an error: in a cluster that restarts everything at once,
// old addresses are a better guess than none, and those that are dead get no streams anyway.
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

// pause reports whether ctx has outlasted d.
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

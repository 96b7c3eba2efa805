package discover

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Registration publishes the address of this process. The zero value publishes nothing.
type Registration struct {
	Register  string // etcd://host:2379,host2:2379/prefix; "" means none
	Advertise string // the host:port at which others reach this process; "" means its listen address
}

// Flags adds the flags of r to fs.
func (r *Registration) Flags(fs *flag.FlagSet) {
	fs.StringVar(&r.Register, "register", "", "`URL` of etcd and the prefix under which this process registers: etcd://host:2379,host2:2379/prefix, or etcds:// with TLS")
	fs.StringVar(&r.Advertise, "advertise", "", "`host:port` at which others reach this process, with --register; empty for its listen address")
}

// Validate returns an error if r is invalid.
func (r *Registration) Validate() error {
	if r.Register == "" {
		if r.Advertise != "" {
			return errors.New("--advertise has no effect without --register")
		}
		return nil
	}
	if _, err := r.where(); err != nil {
		return fmt.Errorf("--register: %w", err)
	}
	if r.Advertise != "" {
		if _, _, err := net.SplitHostPort(r.Advertise); err != nil {
			return fmt.Errorf("--advertise: %w", err)
		}
	}
	return nil
}

func (r *Registration) where() (etcd, error) {
	scheme, rest, ok := strings.Cut(r.Register, "://")
	if !ok || scheme != plainEtcd && scheme != secureEtcd {
		return etcd{}, fmt.Errorf("%.64q does not begin with etcd:// or etcds://", r.Register)
	}
	hosts, prefix, _ := strings.Cut(rest, "/")
	return parseEtcd(scheme, hosts, prefix)
}

// Keeper returns a function that keeps the entry of a service with this name, model and listen
// address until ctx is done, and then deletes it. The function restores the entry after an outage
// of etcd.
func (r *Registration) Keeper(name, model string, addr net.Addr, log *slog.Logger) (keep func(context.Context), err error) {
	if r.Register == "" {
		return func(context.Context) {}, nil
	}
	where, err := r.where()
	if err != nil {
		return nil, err
	}
	e := entry{Addr: r.Advertise, Name: name, Model: model}
	if e.Addr == "" {
		if tcp, ok := addr.(*net.TCPAddr); !ok || tcp.IP.IsUnspecified() {
			return nil, fmt.Errorf("--register needs --advertise: other machines cannot reach %s", addr)
		}
		e.Addr = addr.String()
	}
	value, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	e.Leaving = true
	leaving, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	client, err := where.client()
	if err != nil {
		return nil, err
	}
	log = log.With("registry", r.Register, "address", e.Addr)
	return func(ctx context.Context) {
		defer client.Close() //nolint:errcheck // the entry is deleted, or expires with its lease
		for lost := false; ; {
			begun := time.Now()
			err := lease(ctx, client, where.prefix+e.Addr, string(value), string(leaving), func() { log.Info("registered"); lost = false })
			if ctx.Err() != nil {
				return
			}
			if !lost {
				lost = true
				log.Warn("not registered: new callers may not find this process", "err", err)
			}
			if time.Since(begun) > retryEvery { // callers wait for the entry
				continue
			}
			if !pause(ctx, retryEvery) {
				return
			}
		}
	}, nil
}

// lease holds a key until ctx is done, the lease is lost, or the key is deleted. It calls held when
// it holds the key. When ctx is done, leaving is the key's last value.
func lease(ctx context.Context, client *clientv3.Client, key, value, leaving string, held func()) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	granted, err := client.Grant(asking, int64(leaseFor.Seconds()))
	if err != nil {
		return err
	}
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout/3)
		defer cancel()
		if ctx.Err() != nil {
			_, _ = client.Put(ending, key, leaving, clientv3.WithLease(granted.ID)) // otherwise callers keep the service while it answers
		}
		_, _ = client.Revoke(ending, granted.ID) // otherwise the lease expires
	}()
	put, err := client.Put(asking, key, value, clientv3.WithLease(granted.ID))
	if err != nil {
		return err
	}
	alive, err := client.KeepAlive(keeping, granted.ID)
	if err != nil {
		return err
	}
	held()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	deleted := make(chan struct{})
	watching.Go(func() { awaitDeletion(keeping, client, key, put.Header.GetRevision(), deleted) })
	for {
		select {
		case <-deleted:
			return errors.New("the entry was deleted, or its lease was revoked")
		case _, ok := <-alive:
			if !ok {
				return errors.New("the lease has ended")
			}
		}
	}
}

// awaitDeletion closes deleted when a key is deleted after a revision. Without it, the end of a
// lease is noticed when the lease is next extended.
func awaitDeletion(ctx context.Context, client *clientv3.Client, key string, revision int64, deleted chan<- struct{}) {
	gone := false
	for !gone {
		_ = watchKeys(ctx, client, key, "", revision+1, func(events []*mvccpb.Event) bool { // after an error the lease tells, too
			gone = slices.ContainsFunc(events, func(e *mvccpb.Event) bool { return e.Type == mvccpb.DELETE })
			return !gone
		})
		if !gone && !pause(ctx, retryEvery) {
			return
		}
	}
	close(deleted)
}

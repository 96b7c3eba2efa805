package discover

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// leaseFor is how long an entry outlives a process that says nothing any more.
	leaseFor = 5 * time.Second
	// refreshEvery is how often the whole list is read, which is how an etcd that is gone is noticed: its client does not
	// tell of a watch that waits for it.
	refreshEvery = 3 * time.Second
	// forgiveness is how long entries hold that are not there any more and were not taken away: an etcd that has lost its data
	// is told them again by those that are alive.
	forgiveness = 2 * leaseFor
)

// An etcd is a prefix, under which each service has an entry.
type etcd struct {
	endpoints []string
	prefix    string // ends with a slash
}

// An entry is the value of a key, which is the prefix and the address.
type entry struct {
	Addr  string `json:"address"`
	Name  string `json:"name,omitempty"` // for people
	Model string `json:"model,omitempty"`
}

func parseEtcd(hosts, prefix string) (etcd, error) {
	e := etcd{prefix: strings.Trim(prefix, "/") + "/"}
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			return e, err
		}
		e.endpoints = append(e.endpoints, host)
	}
	if e.prefix == "/" {
		return e, errors.New("there is no prefix behind the hosts of etcd, as in etcd://127.0.0.1:2379/whence/workers")
	}
	return e, nil
}

// client returns a client, which connects when it is used.
func (e etcd) client() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: e.endpoints, DialKeepAliveTime: leaseFor, DialKeepAliveTimeout: askTimeout,
		Logger: zap.NewNop(), // what matters comes as an error, and is logged once
	})
}

func (e etcd) watch(ctx context.Context, last []Target, found func([]Target)) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it only read
	r, err := e.list(ctx, client)
	if err != nil {
		return err
	}
	missing := map[string]Target{} // are held though they are not listed any more
	for _, t := range last {
		missing[e.prefix+t.Addr] = t
	}
	forgiven := time.NewTimer(forgiveness)
	defer forgiven.Stop()
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	changes := client.Watch(watching, e.prefix, clientv3.WithPrefix(), clientv3.WithRev(r.revision+1))
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	for {
		all := maps.Clone(missing)
		maps.Copy(all, r.targets)
		found(slices.SortedFunc(maps.Values(all), func(a, b Target) int { return cmp.Compare(a.Addr, b.Addr) }))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case change, ok := <-changes:
			if !ok {
				return errors.New("etcd has ended the watch")
			}
			if err := change.Err(); err != nil {
				return err
			}
			for _, event := range change.Events {
				r.apply(event)
				if event.Type == clientv3.EventTypeDelete {
					delete(missing, string(event.Kv.Key)) // by its own will, or with its lease
				}
			}
		case <-refresh.C:
			before := r.targets
			if r, err = e.list(ctx, client); err != nil {
				return err
			}
			for key, t := range before {
				if _, ok := r.targets[key]; !ok { // the watch will say why, unless etcd has lost its data
					missing[key] = t
					forgiven.Reset(forgiveness)
				}
			}
		case <-forgiven.C:
			clear(missing)
		}
	}
}

// A register is what etcd has under a prefix, by key.
type register struct {
	targets  map[string]Target
	revision int64 // as of which
}

// apply changes r as a watch says, which may be behind.
func (r register) apply(event *clientv3.Event) {
	if event.Kv.ModRevision <= r.revision {
		return
	}
	key := string(event.Kv.Key)
	if event.Type == clientv3.EventTypeDelete {
		delete(r.targets, key)
	} else if t, ok := read(event.Kv); ok {
		r.targets[key] = t
	}
}

func (e etcd) list(ctx context.Context, client *clientv3.Client) (register, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := client.Get(ctx, e.prefix, clientv3.WithPrefix(), clientv3.WithLimit(maxEntries))
	if err != nil {
		return register{}, fmt.Errorf("etcd at %s: %w", strings.Join(e.endpoints, ", "), err)
	}
	r := register{map[string]Target{}, resp.Header.GetRevision()}
	for _, kv := range resp.Kvs {
		if t, ok := read(kv); ok {
			r.targets[string(kv.Key)] = t
		}
	}
	return r, nil
}

// maxEntries bounds what is read of a prefix.
const maxEntries = 1024

// read returns an entry. Others may have keys under the prefix, which are none.
func read(kv *mvccpb.KeyValue) (Target, bool) {
	var e entry
	if err := json.Unmarshal(kv.Value, &e); err != nil {
		return Target{}, false
	}
	if _, _, err := net.SplitHostPort(e.Addr); err != nil {
		return Target{}, false
	}
	return Target{e.Addr, e.Model}, true
}

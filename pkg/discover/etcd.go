package discover

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// leaseFor is how long the entry of a dead process remains.
	leaseFor = 5 * time.Second
	// refreshEvery is the time between reads of the whole list. They detect an etcd that is gone,
	// because the client of etcd does not report a watch without a connection.
	refreshEvery = 3 * time.Second
	// forgiveness is how long an entry that disappeared without being deleted remains in use: if
	// etcd has lost its data, live processes register again within this time.
	forgiveness = 2 * leaseFor
)

// An etcd is a prefix of keys; each service has an entry under it.
type etcd struct {
	endpoints []string
	prefix    string // ends with a slash
	secure    bool   // the endpoints use TLS
}

// An entry is the value of a key, which consists of the prefix and the address.
type entry struct {
	Addr  string `json:"address"`
	Name  string `json:"name,omitempty"` // for people
	Model string `json:"model,omitempty"`
}

// The schemes of etcd without and with TLS.
const (
	plainEtcd  = "etcd"
	secureEtcd = "etcds"
)

func parseEtcd(scheme, hosts, prefix string) (etcd, error) {
	e := etcd{prefix: strings.Trim(prefix, "/") + "/", secure: scheme == secureEtcd}
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			return e, err
		}
		e.endpoints = append(e.endpoints, host)
	}
	if e.prefix == "/" {
		return e, errors.New("the URL has no prefix after the hosts of etcd, as in etcd://127.0.0.1:2379/whence/workers")
	}
	return e, nil
}

// The environment variables with the user of etcd and the user's password. They are not flags or a
// part of the URL, so that they appear in no list of processes and in no log line.
const (
	userVariable     = "ETCD_USERNAME"
	passwordVariable = "ETCD_PASSWORD" //nolint:gosec // the name of a variable
)

// client returns a client that connects on first use.
func (e etcd) client() (*clientv3.Client, error) {
	var secure *tls.Config // nil means plain TCP
	if e.secure {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return clientv3.New(clientv3.Config{
		TLS: secure, Username: os.Getenv(userVariable), Password: os.Getenv(passwordVariable),
		Endpoints: e.endpoints, DialKeepAliveTime: leaseFor, DialKeepAliveTimeout: askTimeout,
		Logger: zap.NewNop(), // important failures are returned as errors, and logged once
	})
}

func (e etcd) watch(ctx context.Context, last []Target, found func([]Target)) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // the client has only read
	r, err := e.list(ctx, client)
	if err != nil {
		return err
	}
	missing := map[string]Target{} // in use although they are no longer listed
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
				return errors.New("etcd ended the watch")
			}
			if err := change.Err(); err != nil {
				return err
			}
			for _, event := range change.Events {
				r.apply(event)
				if event.Type == clientv3.EventTypeDelete {
					delete(missing, string(event.Kv.Key)) // deleted, or expired with its lease
				}
			}
		case <-refresh.C:
			before := r.targets
			if r, err = e.list(ctx, client); err != nil {
				return err
			}
			for key, t := range before {
				if _, ok := r.targets[key]; !ok { // the watch will report the deletion, unless etcd has lost its data
					missing[key] = t
					forgiven.Reset(forgiveness)
				}
			}
		case <-forgiven.C:
			clear(missing)
		}
	}
}

// A register is the content of etcd under a prefix, by key.
type register struct {
	targets  map[string]Target
	revision int64 // the etcd revision of the content
}

// apply applies an event of a watch, which may be older than the content.
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

// maxEntries bounds the entries read of a prefix.
const maxEntries = 1024

// read parses an entry; ok is false for foreign keys under the prefix.
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

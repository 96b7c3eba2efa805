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
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
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
	// Leaving says that the service ends: the entry goes next.
	Leaving bool `json:"leaving,omitempty"`
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
		Endpoints: e.endpoints, DialKeepAliveTime: leaseFor, DialKeepAliveTimeout: askTimeout, MaxCallRecvMsgSize: maxAnswer,
		Logger: zap.NewNop(), // important failures are returned as errors, and logged once
	})
}

// maxAnswer bounds an answer of etcd, and maxEntry the value of a key, in bytes. A larger value is
// no entry.
const (
	maxAnswer = 16 << 20
	maxEntry  = 4 << 10
)

func (e etcd) watch(ctx context.Context, last []Target, alive func(addr string) bool, found func([]Target)) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // the client has only read
	r, err := e.list(ctx, client)
	if err != nil {
		return err
	}
	lost := map[string]Target{}    // in use although their leases have ended: the services answer
	missing := map[string]Target{} // in use although they are no longer listed
	for _, t := range last {
		missing[e.prefix+t.Addr] = t
	}
	forgiven := time.NewTimer(forgiveness)
	defer forgiven.Stop()
	changes, failed, stop := e.follow(ctx, client, r.revision+1)
	defer stop()
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	for {
		all := maps.Clone(missing)
		maps.Copy(all, lost)
		maps.Copy(all, r.targets)
		found(slices.SortedFunc(maps.Values(all), func(a, b Target) int { return cmp.Compare(a.Addr, b.Addr) }))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case events := <-changes:
			for _, event := range events {
				key := string(event.Kv.Key)
				if delete(lost, key); event.Type == mvccpb.DELETE {
					delete(missing, key) // deleted, or expired with its lease
				}
				if t, ok := lostLease(event); ok && alive(t.Addr) {
					lost[key] = t
				}
				r.apply(event)
			}
		case <-refresh.C:
			maps.DeleteFunc(lost, func(_ string, t Target) bool { return !alive(t.Addr) })
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

// follow sends the changes of the prefix since a revision to changes, until stop is called, and the
// reason why it ends earlier to failed.
func (e etcd) follow(ctx context.Context, client *clientv3.Client, revision int64) (changes <-chan []*mvccpb.Event, failed <-chan error, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	all, ended := make(chan []*mvccpb.Event), make(chan error, 1)
	var following sync.WaitGroup
	following.Go(func() {
		ended <- watchKeys(ctx, client, e.prefix, clientv3.GetPrefixRangeEnd(e.prefix), revision, func(events []*mvccpb.Event) bool {
			select {
			case all <- events:
				return true
			case <-ctx.Done():
				return false
			}
		})
	})
	return all, ended, func() {
		cancel()
		following.Wait()
	}
}

// A register is the content of etcd under a prefix, by key.
type register struct {
	targets  map[string]Target
	revision int64 // the etcd revision of the content
}

// apply applies an event of a watch, which may be older than the content.
func (r register) apply(event *mvccpb.Event) {
	if event.Kv.ModRevision <= r.revision {
		return
	}
	key := string(event.Kv.Key)
	delete(r.targets, key)
	if t, ok := read(event.Kv); ok && event.Type == mvccpb.PUT && len(r.targets) < maxEntries {
		r.targets[key] = t
	}
}

// lostLease returns the target of an entry that was deleted with its lease. The service has not
// left: its lease was revoked, or it did not reach etcd in time. A service restores an entry that
// an operator deletes, so the deletion of an entry with a live lease means nothing more.
func lostLease(event *mvccpb.Event) (Target, bool) {
	if event.Type != mvccpb.DELETE || event.PrevKv == nil || event.PrevKv.Lease == 0 {
		return Target{}, false
	}
	return read(event.PrevKv)
}

// errWatch is the error of a watch that etcd has ended.
var errWatch = errors.New("etcd ended the watch")

// watchKeys calls changed with the changes of the keys from key until before end, or of one key if
// end is "", since a revision. It returns when changed returns false, ctx is done, or the watch
// fails.
//
// It reads the stream itself, because the watcher of etcd's client can end the process: see
// docs/upstream/etcd-watch-panics.md.
func watchKeys(ctx context.Context, client *clientv3.Client, key, end string, revision int64, changed func([]*mvccpb.Event) bool) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	watch, err := etcdserverpb.NewWatchClient(client.ActiveConnection()).Watch(ctx)
	if err != nil {
		return err
	}
	create := &etcdserverpb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte(end), StartRevision: revision, PrevKv: true}
	if err := watch.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		return err
	}
	for {
		answer, err := watch.Recv()
		switch {
		case err != nil:
			return err
		case answer.GetCanceled(), answer.GetCompactRevision() != 0:
			return errWatch
		case slices.ContainsFunc(answer.GetEvents(), func(e *mvccpb.Event) bool { return e.Kv == nil }):
			return errors.New("etcd has sent a change without a key")
		case len(answer.GetEvents()) > 0 && !changed(answer.GetEvents()):
			return context.Cause(ctx)
		}
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
	for _, kv := range resp.Kvs[:min(len(resp.Kvs), maxEntries)] {
		if t, ok := read(kv); ok {
			r.targets[string(kv.Key)] = t
		}
	}
	return r, nil
}

// maxEntries bounds the entries read of a prefix.
const maxEntries = 1024

// read parses an entry; ok is false for foreign keys under the prefix, and for services that leave.
func read(kv *mvccpb.KeyValue) (Target, bool) {
	var e entry
	if len(kv.Value) > maxEntry {
		return Target{}, false
	}
	if err := json.Unmarshal(kv.Value, &e); err != nil || e.Leaving {
		return Target{}, false
	}
	if _, _, err := net.SplitHostPort(e.Addr); err != nil {
		return Target{}, false
	}
	return Target{e.Addr, e.Model}, true
}

package discover

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
)

// A fakeEtcd answers what it likes.
type fakeEtcd struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedWatchServer
	etcdserverpb.UnimplementedLeaseServer
	list    func() *etcdserverpb.RangeResponse
	changes []*etcdserverpb.WatchResponse
	watches atomic.Int64 // that were sent all changes
}

func (f *fakeEtcd) Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return f.list(), nil
}

func (f *fakeEtcd) Put(context.Context, *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	return &etcdserverpb.PutResponse{}, nil
}

func (f *fakeEtcd) Watch(s etcdserverpb.Watch_WatchServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	for _, r := range f.changes {
		_ = s.Send(r) // the caller may have had enough
	}
	f.watches.Add(1)
	<-s.Context().Done()
	return nil
}

func (f *fakeEtcd) LeaseGrant(context.Context, *etcdserverpb.LeaseGrantRequest) (*etcdserverpb.LeaseGrantResponse, error) {
	return &etcdserverpb.LeaseGrantResponse{ID: 1, TTL: 1 << 62}, nil
}

func (f *fakeEtcd) LeaseKeepAlive(s etcdserverpb.Lease_LeaseKeepAliveServer) error {
	_ = s.Send(&etcdserverpb.LeaseKeepAliveResponse{})
	_ = s.Send(&etcdserverpb.LeaseKeepAliveResponse{ID: 1, TTL: -1})
	return nil
}

// serveFake runs a fake until the test ends, and returns its URL.
func serveFake(t *testing.T, f *fakeEtcd) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	etcdserverpb.RegisterKVServer(s, f)
	etcdserverpb.RegisterWatchServer(s, f)
	etcdserverpb.RegisterLeaseServer(s, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ln)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return "etcd://" + ln.Addr().String() + "/whence/test"
}

func value(addr string) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte("whence/test/" + addr), Value: []byte(`{"address":"` + addr + `"}`), ModRevision: 1 << 40}
}

// TestNoAnswerOfEtcdEndsTheProcess: the watcher of etcd's client panics on most of these answers,
// in a goroutine of its own.
func TestNoAnswerOfEtcdEndsTheProcess(t *testing.T) {
	t.Parallel()
	header, events := &etcdserverpb.ResponseHeader{Revision: 1}, []*mvccpb.Event{{Kv: value("b:1")}}
	for name, changes := range map[string][]*etcdserverpb.WatchResponse{
		"no header":            {{Created: true}, {Events: events}},
		"no key":               {{Header: header, Created: true}, {Header: header, Events: []*mvccpb.Event{{}}}},
		"a deletion of no key": {{Header: header, Created: true}, {Header: header, Events: []*mvccpb.Event{{Type: mvccpb.DELETE}}}},
		"canceled twice":       {{Header: header, Created: true}, {Header: header, Canceled: true}, {Header: header, Canceled: true}},
		"changes after the end": {
			{Header: header, Created: true}, {Header: header, Canceled: true}, {Header: header, Events: events},
		},
		"created twice": {{Header: header, Created: true}, {Header: header, Created: true}, {Header: header, Events: events}},
		"compacted":     {{Header: header, Created: true, CompactRevision: 5, Canceled: true}},
		"more follows":  {{Header: header, Created: true}, {Header: header, Fragment: true, Events: events}, {Header: header, Fragment: true, Events: events}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeEtcd{changes: changes, list: func() *etcdserverpb.RangeResponse {
				return &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{value("a:1")}}
			}}
			url := serveFake(t, f)
			l := follow(t, parse(t, url))
			r := Registration{Register: url, Advertise: "c:1"}
			keepFake(t, &r)
			polltest.Eventually(t, "it was sent all changes twice", func() bool { return f.watches.Load() >= 2 })
			if got := l.last(); got != "a:1" && got != "a:1 b:1" {
				t.Errorf("found %q", got)
			}
		})
	}
}

// keepFake registers with a fake until the test ends.
func keepFake(t *testing.T, r *Registration) {
	t.Helper()
	keep(t, &server{addr: strings.TrimSuffix(strings.TrimPrefix(r.Register, "etcd://"), "/whence/test")}, r.Advertise, new(logtest.Log))
}

// TestEntriesAreBounded: neither a list nor changes make a process keep more than maxEntries
// entries of at most maxEntry bytes.
func TestEntriesAreBounded(t *testing.T) {
	t.Parallel()
	var many []*mvccpb.KeyValue
	for i := range 2 * maxEntries {
		many = append(many, value(fmt.Sprintf("a%d:1", i)))
	}
	var more []*etcdserverpb.WatchResponse
	for i := range 2 * maxEntries {
		more = append(more, &etcdserverpb.WatchResponse{Events: []*mvccpb.Event{{Kv: value(fmt.Sprintf("b%d:1", i))}}})
	}
	large := value("large:1")
	large.Value = []byte(`{"address":"large:1","name":"` + strings.Repeat("a", maxEntry) + `"}`)
	f := &fakeEtcd{list: func() *etcdserverpb.RangeResponse {
		return &etcdserverpb.RangeResponse{Kvs: append([]*mvccpb.KeyValue{large}, many...)}
	}, changes: more}
	l := follow(t, parse(t, serveFake(t, f)))
	polltest.Eventually(t, "all changes are sent", func() bool { return f.watches.Load() > 0 })
	polltest.Eventually(t, "the changes are found", func() bool { return strings.Contains(l.last(), "a5:1") })
	for _, found := range l.all() {
		if n := len(strings.Fields(found)); n > maxEntries || strings.Contains(found, "large") {
			t.Errorf("%d targets", n)
		}
	}
}

// TestEndlessAnswerOfEtcdIsRefused: an answer of more than maxAnswer bytes is an error.
func TestEndlessAnswerOfEtcdIsRefused(t *testing.T) {
	t.Parallel()
	large := value("a:1")
	large.Value = make([]byte, maxAnswer)
	source := parse(t, serveFake(t, &fakeEtcd{list: func() *etcdserverpb.RangeResponse { return &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{large}} }}))
	l := follow(t, source)
	polltest.Eventually(t, "the answer is refused", func() bool { return l.Count("discovery does not answer") == 1 })
}

package discover

import (
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
)

// connect returns a client of an etcd until the test ends.
func (s *server) connect(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// leaseOf returns the lease of an entry; 0 means that there is no entry.
func leaseOf(t *testing.T, client *clientv3.Client, addr string) clientv3.LeaseID {
	t.Helper()
	got, err := client.Get(t.Context(), "whence/test/"+addr)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Kvs) == 0 {
		return 0
	}
	return clientv3.LeaseID(got.Kvs[0].Lease)
}

// TestRevokedLeaseIsReplacedAtOnce: the process watches its entry. Otherwise it notices only when
// it next extends the lease. Whoever follows the services loses none that answers.
func TestRevokedLeaseIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	client, log := s.connect(t), new(logtest.Log)
	l := followAlive(t, parse(t, s.url()), func(string) bool { return true })
	keep(t, s, "a:1", log)
	polltest.Eventually(t, "it is found", func() bool { return l.last() == "a:1" })
	const noticed = "the entry was deleted, or its lease was revoked"
	for range 10 { // now and then the process extends the lease just then, and notices so
		before := leaseOf(t, client, "a:1")
		if _, err := client.Revoke(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		polltest.Eventually(t, "it has another lease", func() bool { now := leaseOf(t, client, "a:1"); return now != 0 && now != before })
		if log.Count(noticed) > 0 {
			break
		}
	}
	if log.Count(noticed) == 0 {
		t.Error(log.String())
	}
	if _, err := client.Delete(t.Context(), "whence/test/a:1"); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "a deleted entry is back", func() bool { return leaseOf(t, client, "a:1") != 0 })
	if got := strings.Join(l.all(), ","); got != ",a:1" && got != "a:1" {
		t.Errorf("the services that were found: %q", got)
	}
}

// TestServiceWithoutLeaseIsKeptWhileItAnswers: nobody restores the entry here.
func TestServiceWithoutLeaseIsKeptWhileItAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	client := s.connect(t)
	var away atomic.Bool
	l := followAlive(t, parse(t, s.url()), func(addr string) bool { return addr != "dead:1" && !away.Load() })
	for _, addr := range []string{"dead:1", "alive:1"} {
		granted, err := client.Grant(t.Context(), 600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(t.Context(), "whence/test/"+addr, `{"address":"`+addr+`"}`, clientv3.WithLease(granted.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Put(t.Context(), "whence/test/fixed:1", `{"address":"fixed:1"}`); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "all are found", func() bool { return l.last() == "alive:1 dead:1 fixed:1" })
	for _, addr := range []string{"alive:1", "dead:1"} {
		if _, err := client.Revoke(t.Context(), leaseOf(t, client, addr)); err != nil {
			t.Fatal(err)
		}
	}
	polltest.Eventually(t, "the dead one is removed", func() bool { return l.last() == "alive:1 fixed:1" })
	if _, err := client.Delete(t.Context(), "whence/test/fixed:1"); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "an entry without a lease is removed by its deletion", func() bool { return l.last() == "alive:1" })
	away.Store(true)
	polltest.Eventually(t, "a service that answers no more is removed", func() bool { return l.last() == "" })
}

// TestServiceThatLeavesIsRemovedAlthoughItAnswers: it drains, and may answer for long.
func TestServiceThatLeavesIsRemovedAlthoughItAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	l := followAlive(t, parse(t, s.url()), func(string) bool { return true })
	leave := keep(t, s, "a:1", new(logtest.Log))
	polltest.Eventually(t, "it is found", func() bool { return l.last() == "a:1" })
	leave()
	polltest.Eventually(t, "it is removed", func() bool { return l.last() == "" })
}

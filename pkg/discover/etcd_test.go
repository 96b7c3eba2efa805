package discover

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/loopback"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc/mtls/mtlstest"
)

// A server is an etcd process of the test.
type server struct {
	addr, peer, dir string
	pair            mtlstest.Pair // for TLS; the zero value means plain TCP
	cmd             *exec.Cmd
}

// serve starts an etcd, or skips the test if etcd is not installed.
func serve(t *testing.T) *server {
	t.Helper()
	return serveTLS(t, mtlstest.Pair{})
}

// serveTLS is serve with a certificate.
func serveTLS(t *testing.T, pair mtlstest.Pair) *server {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("etcd is not installed")
	}
	s := &server{addr: freeAddr(t), peer: freeAddr(t), dir: t.TempDir(), pair: pair}
	s.start(t)
	t.Cleanup(func() { s.kill(t) })
	return s
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := loopback.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// start starts the etcd with the data in its directory.
func (s *server) start(t *testing.T) {
	t.Helper()
	scheme, secure := "http://", []string(nil)
	if s.pair.Cert != "" {
		scheme, secure = "https://", []string{"--cert-file", s.pair.Cert, "--key-file", s.pair.Key}
	}
	s.cmd = exec.Command("etcd", append(secure, "--data-dir", s.dir, "--listen-client-urls", scheme+s.addr, "--advertise-client-urls", scheme+s.addr,
		"--listen-peer-urls", "http://"+s.peer, "--initial-advertise-peer-urls", "http://"+s.peer, "--initial-cluster", "default=http://"+s.peer)...)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "etcd listens", func() bool {
		conn, err := net.Dial("tcp", s.addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

func (s *server) kill(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	_ = s.cmd.Wait()
}

func (s *server) url() string {
	if s.pair.Cert != "" {
		return "etcds://" + s.addr + "/whence/test"
	}
	return "etcd://" + s.addr + "/whence/test"
}

// keep registers addr until the test ends, or the returned function is called.
func keep(t *testing.T, s *server, addr string, log *logtest.Log) (leave func()) {
	t.Helper()
	r := Registration{Register: s.url(), Advertise: addr}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	hold, err := r.Keeper("w", "m", nil, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() { hold(ctx) })
	leave = func() {
		cancel()
		keeping.Wait()
	}
	t.Cleanup(func() {
		leave()
		if t.Failed() {
			t.Logf("%s logged:\n%s", addr, log)
		}
	})
	return leave
}

func TestServicesComeAndGo(t *testing.T) {
	t.Parallel()
	s := serve(t)
	source := parse(t, s.url())
	l, log := follow(t, source), new(logtest.Log)
	polltest.Eventually(t, "an empty list", func() bool { return l.Count("found=0") == 1 })
	leave := keep(t, s, "a:1", log)
	polltest.Eventually(t, "it is found", func() bool { return l.last() == "a:1" })
	keep(t, s, "b:2", log)
	polltest.Eventually(t, "both are found", func() bool { return l.last() == "a:1 b:2" })
	leave()
	polltest.Eventually(t, "it is gone", func() bool { return l.last() == "b:2" })
	if log.Count("msg=registered") != 2 || log.Count("not registered") != 0 {
		t.Error(log.String())
	}
}

func TestDeadServiceIsRemovedWithItsLease(t *testing.T) {
	t.Parallel()
	s := serve(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	granted, err := client.Grant(t.Context(), int64(leaseFor.Seconds()))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"dead:1": `{"address":"dead:1","model":"m"}`, "note": "of somebody", "bad": `{"address":"nowhere"}`} {
		if _, err := client.Put(t.Context(), "whence/test/"+key, value, clientv3.WithLease(granted.ID)); err != nil {
			t.Fatal(err)
		}
	}
	l := follow(t, parse(t, s.url()))
	polltest.Eventually(t, "it is found", func() bool { return l.last() == "dead:1" })
	polltest.Eventually(t, "it is gone", func() bool { return l.last() == "" })
}

func TestFleetOutlivesEtcd(t *testing.T) {
	t.Parallel()
	s := serve(t)
	source := parse(t, s.url())
	l, log := follow(t, source), new(logtest.Log)
	keep(t, s, "a:1", log)
	keep(t, s, "b:2", log)
	polltest.Eventually(t, "both are found", func() bool { return l.last() == "a:1 b:2" })
	// A service is found before its process knows that it is registered.
	polltest.Eventually(t, "both know that they are registered", func() bool { return log.Count("msg=registered") >= 2 })
	lost := log.Count("not registered") // a starved process may have lost its lease, and have a new one
	s.kill(t)
	polltest.Eventually(t, "that is noticed", func() bool { return !source.Answers() })
	polltest.Eventually(t, "the registered services notice it, too", func() bool { return log.Count("not registered") >= lost+2 })
	if l.last() != "a:1 b:2" {
		t.Error(l.all())
	}
	lists, registered := len(l.all()), log.Count("msg=registered")
	s.dir = t.TempDir() // loses all data
	s.start(t)
	polltest.Eventually(t, "etcd answers again", source.Answers)
	polltest.Eventually(t, "they are registered again", func() bool { return log.Count("msg=registered") >= registered+2 })
	if n := l.Count("discovery answers again"); len(l.all()) != lists || n == 0 || l.Count("discovery does not answer") != n {
		t.Error(l.all(), l.Count("msg="))
	}
	keep(t, s, "c:3", log)
	polltest.Eventually(t, "a new service is found", func() bool { return l.last() == "a:1 b:2 c:3" })
}

func TestEtcdThatHasLostItsDataRemovesNoTargets(t *testing.T) {
	t.Parallel()
	s := serve(t)
	l, log := follow(t, parse(t, s.url())), new(logtest.Log)
	keep(t, s, "a:1", log)
	polltest.Eventually(t, "it is found", func() bool { return l.last() == "a:1" })
	s.kill(t)
	before := log.Count("msg=registered") // a starved process may have lost its lease, and have a new one
	s.dir = t.TempDir()
	s.start(t) // before the processes notice
	polltest.Eventually(t, "it is registered again", func() bool { return log.Count("msg=registered") > before })
	again := follow(t, parse(t, s.url()))
	polltest.Eventually(t, "a new watcher finds the service", func() bool { return again.last() == "a:1" })
	if got := strings.TrimSpace(strings.Join(l.all(), ",")); got != "a:1" && got != ",a:1" { // the list may be empty at first
		t.Errorf("%q", got)
	}
}

func TestServiceThatEndsDuringAnOutageIsRemoved(t *testing.T) {
	t.Parallel()
	s := serve(t)
	source := parse(t, s.url())
	l, log := follow(t, source), new(logtest.Log)
	keep(t, s, "a:1", log)
	leave := keep(t, s, "b:2", log)
	polltest.Eventually(t, "both are found", func() bool { return l.last() == "a:1 b:2" })
	s.kill(t)
	polltest.Eventually(t, "that is noticed", func() bool { return !source.Answers() })
	leave()
	s.start(t)
	polltest.Eventually(t, "the ended service is removed", func() bool { return l.last() == "a:1" })
}

func TestInvalidRegistrationsAreRefused(t *testing.T) {
	for want, r := range map[string]Registration{
		"--advertise has no effect without --register": {Advertise: "h:1"},
		"does not begin with etcd://":                  {Register: "dns:///x:1"},
		"--register: the URL has no prefix":            {Register: "etcd://h:1"},
		"--advertise: address nowhere":                 {Register: "etcd://h:1/p", Advertise: "nowhere"},
	} {
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	anywhere := Registration{Register: "etcd://h:1/p"}
	if _, err := anywhere.Keeper("w", "m", &net.TCPAddr{IP: net.IPv4zero, Port: 1}, nil); err == nil || !strings.Contains(err.Error(), "--register needs --advertise") {
		t.Error(err)
	}
	if keep, err := new(Registration).Keeper("w", "m", nil, nil); err != nil {
		t.Error(err)
	} else {
		keep(t.Context())
	}
}

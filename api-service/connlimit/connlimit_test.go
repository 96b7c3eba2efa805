package connlimit_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/connlimit"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func client(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711} }

func TestConnectionsAreCounted(t *testing.T) {
	var proxies connlimit.Proxies
	if err := proxies.Set("10.0.0.0/8, 2001:db8:ffff::1"); err != nil {
		t.Fatal(err)
	}
	var logs strings.Builder
	l := connlimit.New(connlimit.Config{Total: 6, PerAddress: 2, Proxies: proxies}, nil, slog.New(slog.NewTextHandler(&logs, nil)))
	leaves := map[string]func(){}
	for _, step := range []struct {
		ip string
		ok bool
	}{
		{"192.0.2.1", true}, {"192.0.2.1", true}, {"192.0.2.1", false}, // its two
		{"2001:db8::1", true}, {"2001:db8::2:3", true}, {"2001:db8::ffff", false}, // one /64
		{"10.1.2.3", true}, {"10.1.2.3", true}, {"10.1.2.3", false}, // a proxy, up to the total
		{"192.0.2.2", false}, // the total limit is reached
	} {
		leave, ok := l.Enter(client(step.ip))
		if ok != step.ok {
			t.Fatalf("%s gets in: %t, want %t", step.ip, ok, step.ok)
		}
		if ok {
			leaves[step.ip] = leave
		}
	}
	leaves["10.1.2.3"]()
	if _, ok := l.Enter(client("192.0.2.1")); ok {
		t.Error("an address has more than its connections after another one has left")
	}
	leaves["192.0.2.1"]()
	if _, ok := l.Enter(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1).To16()}); !ok {
		t.Error("an address does not get in after one of its connections has left")
	}
	if _, ok := l.Enter(client("192.0.2.1")); ok {
		t.Error("an address has more connections in another form of it")
	}
	if n := strings.Count(logs.String(), "connections are refused"); n != 1 {
		t.Errorf("%d log lines about many refusals, want 1: %s", n, &logs)
	}
}

func TestProxiesAreParsed(t *testing.T) {
	for text, want := range map[string]string{"10.0.0.7/8": "10.0.0.0/8", "192.0.2.1,::1": "192.0.2.1/32,::1/128", "": "", "proxy": "neither an address", "10.0.0.0/99": "neither an address", "fe80::1%eth0": "neither an address",
		"::ffff:10.0.0.7/104,::ffff:192.0.2.1": "10.0.0.0/8,192.0.2.1/32", "::ffff:0:0/90": "write the IPv4 network",
	} {
		var p connlimit.Proxies
		err := p.Set(text)
		if got := p.String(); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	var p connlimit.Proxies
	if err := p.Set("10.0.0.0/8"); err != nil || !p.Trusts(client("10.9.9.9")) || !p.Trusts(client("::ffff:10.9.9.9")) || p.Trusts(client("11.0.0.1")) || p.Trusts(&net.UnixAddr{}) {
		t.Error(p, err)
	}
}

// TestConnectionsOtherThanTCPAreCounted: in all, because they have no client address.
func TestConnectionsOtherThanTCPAreCounted(t *testing.T) {
	plain, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	ln := connlimit.New(connlimit.Config{Total: 1, PerAddress: 1}, nil, slog.New(slog.DiscardHandler)).Listener(plain)
	dial := func() net.Conn {
		conn, err := net.Dial("unix", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		return conn
	}
	dial()
	first, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan net.Conn, 1)
	go func() {
		conn, _ := ln.Accept()
		next <- conn
	}()
	if _, err := dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the second connection is not closed: %v", err)
	}
	_ = first.Close()
	dial()
	if conn := <-next; conn == nil {
		t.Error("a connection is not accepted after another one has closed")
	} else {
		_ = conn.Close()
	}
}

package gate_test

import (
	"net"
	"testing"

	"github.com/whence-dev/whence/api-service/gate"
)

func TestListsAreRepeatedOrSeparated(t *testing.T) {
	var l gate.List
	for _, text := range []string{"a, b", "", "c,"} {
		if err := l.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	if l.String() != "a,b,c" {
		t.Error(l)
	}
}

func TestOriginsAndHostsAreChecked(t *testing.T) {
	for _, origin := range []string{"http://a", "https://a.example:8443", "http://[::1]:5173", "http://localhost:5173"} {
		if err := gate.CheckOrigins(gate.List{origin}); err != nil {
			t.Error(err)
		}
	}
	for _, origin := range []string{"*", "null", "a.example", "http://", "http://a/", "http://a/b", "ftp://a", "http://A", "http://u@a", "http://a?b"} {
		if gate.CheckOrigins(gate.List{origin}) == nil {
			t.Errorf("%q is taken for an origin", origin)
		}
	}
	if err := gate.CheckHosts(gate.List{"a.example", "10.0.0.1", "fe80::1"}); err != nil {
		t.Error(err)
	}
	for _, host := range []string{"http://a", "a:80", "a/b"} {
		if gate.CheckHosts(gate.List{host}) == nil {
			t.Errorf("%q is taken for a host", host)
		}
	}
}

func listening(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 8080} }

func TestOnLoopbackTheHostMustBeThisMachine(t *testing.T) {
	for _, listen := range []string{"127.0.0.1", "::1", "127.8.8.8"} {
		g := gate.New(listening(listen), nil, gate.List{"Whence.test"})
		for _, host := range []string{"127.0.0.1:8080", "127.0.0.1", "localhost", "LOCALHOST:1", "[::1]:8080", "[::1]", "127.8.8.8:8080", "app.localhost:8080", "localhost.", "whence.test:8080", "[::ffff:127.0.0.1]:80"} {
			if err := g.Host(host); err != nil {
				t.Errorf("%s, on %s: %v", host, listen, err)
			}
		}
		for _, host := range []string{"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1:8080", "notlocalhost", "x", "[evil]", "127.0.0.1:80:80"} {
			if g.Host(host) == nil {
				t.Errorf("%q passes, on %s", host, listen)
			}
		}
	}
	for _, listen := range []string{"10.0.0.1", "0.0.0.0", "::"} {
		if err := gate.New(listening(listen), nil, nil).Host("whence.example"); err != nil {
			t.Errorf("on %s: %v", listen, err)
		}
	}
}

func TestOnlyListedOriginsMayRead(t *testing.T) {
	g := gate.New(listening("0.0.0.0"), gate.List{"https://a.example"}, nil)
	if !g.Origin("https://a.example") {
		t.Error("a listed origin may not read")
	}
	for _, origin := range []string{"", "null", "http://a.example", "https://a.example:444", "https://b.a.example", "https://a.example.evil"} {
		if g.Origin(origin) {
			t.Errorf("%q may", origin)
		}
	}
}

func FuzzHost(f *testing.F) {
	g := gate.New(listening("127.0.0.1"), nil, nil)
	for _, host := range []string{"127.0.0.1:8080", "[::1]", "evil.example", ":", "[", "]:1"} {
		f.Add(host)
	}
	f.Fuzz(func(_ *testing.T, host string) { _ = g.Host(host) })
}

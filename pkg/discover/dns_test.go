package discover

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/whence-dev/whence/internal/polltest"
)

// A zone is a DNS server without sockets, so that a test can use virtual time.
type zone struct {
	mu   sync.Mutex // guards the following fields
	ips  []string
	srv  map[string]uint16
	down bool
}

func (z *zone) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe() // not a packet connection: messages have length prefixes
		go z.answer(there)
		return here, nil
	}}
}

// becomes changes the answers of the zone.
func (z *zone) becomes(down bool, ips ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.down, z.ips = down, ips
}

func (z *zone) answer(conn net.Conn) {
	defer conn.Close()
	head := make([]byte, 2)
	if _, err := io.ReadFull(conn, head); err != nil {
		return
	}
	asked := make([]byte, binary.BigEndian.Uint16(head))
	if _, err := io.ReadFull(conn, asked); err != nil {
		return
	}
	if reply := z.reply(asked); reply != nil {
		_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
	}
}

// reply returns the answer to a message, or nil if the message is malformed.
func (z *zone) reply(asked []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(asked) != nil || len(m.Questions) == 0 {
		return nil
	}
	m.Response, m.Additionals = true, nil
	z.mu.Lock()
	defer z.mu.Unlock()
	q := m.Questions[0]
	add := func(body dnsmessage.ResourceBody) {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 30}, Body: body})
	}
	for _, text := range z.ips {
		switch ip := netip.MustParseAddr(text); {
		case ip.Is4() && q.Type == dnsmessage.TypeA:
			add(&dnsmessage.AResource{A: ip.As4()})
		case ip.Is6() && q.Type == dnsmessage.TypeAAAA:
			add(&dnsmessage.AAAAResource{AAAA: ip.As16()})
		}
	}
	for host, port := range z.srv {
		if q.Type == dnsmessage.TypeSRV {
			add(&dnsmessage.SRVResource{Target: dnsmessage.MustNewName(host), Port: port})
		}
	}
	if z.down {
		m.RCode = dnsmessage.RCodeServerFailure
	}
	packed, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return packed
}

func TestNameIsResolvedPeriodically(t *testing.T) {
	// The first lookup loads the configuration of all resolvers. It must happen outside a synctest
	// bubble.
	_, _ = new(zone).resolver().LookupHost(t.Context(), "nobody.test.")
	synctest.Test(t, func(t *testing.T) {
		z := &zone{ips: []string{"10.0.0.2", "10.0.0.1", "fd00::1"}}
		s := &Source{text: "dns:///workers.test.:8082", watch: dns{z.resolver(), "workers.test.", "8082"}.watch}
		l := follow(t, s)
		time.Sleep(time.Second)
		if l.last() != "10.0.0.1:8082 10.0.0.2:8082 [fd00::1]:8082" {
			t.Error(l.found)
		}
		z.becomes(false, "10.0.0.3")
		time.Sleep(resolveEvery)
		if l.last() != "10.0.0.3:8082" {
			t.Error(l.found)
		}
		for _, down := range []bool{true, false} {
			z.becomes(down)
			time.Sleep(resolveEvery + 10*askTimeout)
			if l.last() != "10.0.0.3:8082" || s.Answers() {
				t.Error("the last targets are not in use:", l.found)
			}
		}
		z.becomes(false, "10.0.0.4")
		time.Sleep(resolveEvery)
		if l.last() != "10.0.0.4:8082" || !s.Answers() || l.Count("discovery does not answer") != 1 {
			t.Error(l.found, l.String())
		}
	})
}

func TestServiceRecordsHavePorts(t *testing.T) {
	z := &zone{srv: map[string]uint16{"a.test.": 1, "b.test.": 2}}
	addrs, err := dns{z.resolver(), "_grpc._tcp.test.", ""}.resolve(t.Context())
	if want := []string{"a.test:1", "b.test:2"}; err != nil || !slices.Equal(addrs, want) {
		t.Error(addrs, err)
	}
}

// TestServerOfAName: the name is resolved by the server that the source names.
func TestServerOfAName(t *testing.T) {
	z := &zone{ips: []string{"10.0.0.1"}}
	ln, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := ln.ReadFrom(b)
			if err != nil {
				return
			}
			if reply := z.reply(b[:n]); reply != nil {
				_, _ = ln.WriteTo(reply, from)
			}
		}
	}()
	l := follow(t, parse(t, "dns://"+ln.LocalAddr().String()+"/workers.test.:1"))
	polltest.Eventually(t, "the server's answer is in use", func() bool { return l.last() == "10.0.0.1:1" })
}

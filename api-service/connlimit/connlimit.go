// Package connlimit bounds the connections of the public listener: in all, and from each client address, so that one machine
// cannot take the descriptors and the memory of all others.
//
// A connection over a limit is closed at once, before any of its bytes are read. IPv6 clients count
// by their /64, the network of one machine. Connections of trusted proxies carry many clients and
// count toward the total only.
package connlimit

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/metrics"
)

// Defaults of Config. One address may have as many connections as an instance has streams, so that
// the limit of streams is reached first, even behind a proxy that is not configured as one.
const (
	DefaultTotal      = 20000
	DefaultPerAddress = 10000
)

// A Config bounds the connections of a listener. The zero value bounds none.
type Config struct {
	Total      int // in all; 0 means no bound
	PerAddress int // from one client address; 0 means no bound
	// Proxies are the addresses of proxies. Their X-Forwarded-For is trusted, and PerAddress does
	// not apply to them.
	Proxies Proxies
}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.IntVar(&c.Total, "max-connections", DefaultTotal, "maximum open connections of clients; further connections are closed at once; 0 means no limit")
	fs.IntVar(&c.PerAddress, "max-connections-per-address", DefaultPerAddress, "maximum open connections from one client address (IPv6: one /64), except for addresses of --trusted-proxy; further connections are closed at once; 0 means no limit")
	fs.Var(&c.Proxies, "trusted-proxy", "`address` or network of proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8; repeated, or separated by commas. --trust-forwarded trusts every address")
}

// Validate checks c.
func (c *Config) Validate() error {
	if c.Total < 0 || c.PerAddress < 0 {
		return errors.New("--max-connections and --max-connections-per-address must not be negative")
	}
	return nil
}

// Proxies is a flag.Value of addresses and networks.
type Proxies []netip.Prefix

// String returns the list in the syntax of Set.
func (p *Proxies) String() string {
	texts := make([]string, len(*p))
	for i, network := range *p {
		texts[i] = network.String()
	}
	return strings.Join(texts, ",")
}

// Set adds to the list.
func (p *Proxies) Set(text string) error {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		network, err := netip.ParsePrefix(item)
		if err != nil {
			var addr netip.Addr
			if addr, err = netip.ParseAddr(item); err != nil || addr.Zone() != "" {
				return fmt.Errorf("%.64q is neither an address nor a network", item)
			}
			network = netip.PrefixFrom(addr, addr.BitLen())
		}
		if network, err = unmapped(network); err != nil {
			return fmt.Errorf("%.64q: %w", item, err)
		}
		*p = append(*p, network.Masked())
	}
	return nil
}

// mappedBits is the length of the prefix of IPv4 addresses in IPv6, ::ffff:0:0/96.
const mappedBits = 96

// unmapped returns the IPv4 network that a network of IPv4-mapped addresses stands for. Other networks stay as they are.
func unmapped(network netip.Prefix) (netip.Prefix, error) {
	switch {
	case !network.Addr().Is4In6():
		return network, nil
	case network.Bits() < mappedBits:
		return network, errors.New("the network also contains IPv6 addresses; write the IPv4 network, such as 10.0.0.0/8")
	default:
		return netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-mappedBits), nil
	}
}

// Trusts reports whether an address is a proxy's.
func (p *Proxies) Trusts(addr net.Addr) bool {
	ip := addressOf(addr)
	for _, network := range *p {
		if network.Contains(ip) {
			return true
		}
	}
	return false
}

// addressOf returns the IP address of a client; the zero Addr if it has none.
func addressOf(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip, _ := netip.AddrFromSlice(tcp.IP)
	return ip.Unmap()
}

// clientBits is the length of the IPv6 prefix that counts as one client.
const clientBits = 64

// clientOf returns the address or, for IPv6, the network by which connections are counted.
func clientOf(ip netip.Addr) netip.Addr {
	if !ip.Is6() {
		return ip
	}
	network, _ := ip.Prefix(clientBits) // never fails for IPv6
	return network.Addr()
}

// Forwarded returns the last address of the lines of an X-Forwarded-For, which the proxy has added
// itself, or "" if the last entry is not an address: terminals print the address unchanged. Lines
// before the last may be the client's own: HAProxy keeps them.
func Forwarded(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	line := lines[len(lines)-1]
	last := strings.TrimSpace(line[strings.LastIndexByte(line, ',')+1:])
	if !isAddress(last) {
		return ""
	}
	return last
}

// isAddress reports whether text is an IP address, with or without a port. An address with a zone
// is refused, because a zone may be any text.
func isAddress(text string) bool {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		var withPort netip.AddrPort
		withPort, err = netip.ParseAddrPort(text)
		addr = withPort.Addr()
	}
	return err == nil && addr.Zone() == ""
}

// logEvery is the time between log lines about refusals: an attacker causes many.
const logEvery = time.Minute

// A Limiter counts the connections of one listener. All methods are safe for concurrent use.
type Limiter struct {
	config Config
	hop    *metrics.Hop // may be nil
	log    *slog.Logger

	mu     sync.Mutex // guards the following fields
	total  int
	from   map[netip.Addr]int
	logged time.Time
}

// New returns a Limiter, which reports to hop, which may be nil, and log.
func New(c Config, hop *metrics.Hop, log *slog.Logger) *Limiter {
	return &Limiter{config: c, hop: hop, log: log, from: map[netip.Addr]int{}}
}

// Enter counts a new connection of a client, or returns false if it must be closed. The caller calls leave, once, when the
// connection is closed.
func (l *Limiter) Enter(addr net.Addr) (leave func(), ok bool) {
	client := clientOf(addressOf(addr))
	if l.config.Proxies.Trusts(addr) {
		client = netip.Addr{} // counts in all only
	}
	if limit := l.count(client); limit != "" {
		l.hop.ConnectionRefused(limit)
		if l.due() {
			l.log.Warn("connections are refused, because too many are open", "limit", limit, "client", client.String())
		}
		return nil, false
	}
	l.hop.ConnectionOpened()
	return func() {
		l.hop.ConnectionClosed()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.total--
		if l.from[client]--; l.from[client] <= 0 {
			delete(l.from, client)
		}
	}, true
}

// count counts a connection, or returns the limit that it would exceed.
func (l *Limiter) count(client netip.Addr) (limit string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.config.Total > 0 && l.total >= l.config.Total:
		return "total"
	case l.config.PerAddress > 0 && client.IsValid() && l.from[client] >= l.config.PerAddress:
		return "address"
	}
	l.total++
	l.from[client]++
	return ""
}

// due reports whether a refusal may be logged now.
func (l *Limiter) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.logged) < logEvery {
		return false
	}
	l.logged = time.Now()
	return true
}

// Listener returns a listener that closes the connections of ln that are over a limit. Connections other than
// TCP have no client address, and count in all only.
func (l *Limiter) Listener(ln net.Listener) net.Listener { return listener{ln, l} }

type listener struct {
	net.Listener
	limiter *Limiter
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		leave, ok := l.limiter.Enter(accepted.RemoteAddr())
		if !ok {
			_ = accepted.Close()
			continue
		}
		if tcp, ok := accepted.(*net.TCPConn); ok {
			return &tcpConn{tcp, sync.OnceFunc(leave)}, nil
		}
		return &conn{accepted, sync.OnceFunc(leave)}, nil
	}
}

// A tcpConn is a counted connection that keeps the methods of TCP.
type tcpConn struct {
	*net.TCPConn
	leave func()
}

// Close implements net.Conn.
func (c *tcpConn) Close() error {
	c.leave()
	return c.TCPConn.Close()
}

// A conn is another counted connection.
type conn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// Package gate decides which web pages may call this service.
//
// A browser sends requests to any address that a page names. The same-origin policy keeps pages of
// other sites from reading the answers, and an allow-list makes exceptions (CORS). DNS rebinding
// circumvents the policy: the DNS name of the page is pointed at this machine, so that the page has
// the same origin. But its requests have that name as their Host, which the gate checks.
package gate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/whence-dev/whence/internal/flags"
)

// A List is a list of origins or of host names.
type List = flags.List

// CheckOrigins reports the first entry that is not an origin. There is no wildcard: a service on
// loopback, which requires no key, would be readable by every web page.
func CheckOrigins(origins List) error {
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || origin != u.Scheme+"://"+u.Host || origin != strings.ToLower(origin) {
			return fmt.Errorf("%q is not an origin, which is scheme://host or scheme://host:port in lower case", origin)
		}
	}
	return nil
}

// CheckHosts reports the first entry that is not a host name.
func CheckHosts(hosts List) error {
	for _, host := range hosts {
		if strings.ContainsAny(host, "/:@ ") && !isIP(host) {
			return fmt.Errorf("%q is not a host name; leave out scheme and port", host)
		}
	}
	return nil
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// A Gate checks hosts and origins.
type Gate struct {
	origins map[string]bool
	hosts   map[string]bool // nil means any host
}

// New returns the gate of a listener. It checks hosts only on loopback: a public listener has names
// that it does not know, and DNS rebinding targets listeners that others cannot reach. A nil listen
// does not count as loopback.
func New(listen net.Addr, origins, hosts List) *Gate {
	g := &Gate{origins: map[string]bool{}}
	for _, origin := range origins {
		g.origins[origin] = true
	}
	if Loopback(listen) {
		g.hosts = map[string]bool{"localhost": true}
		for _, host := range hosts {
			g.hosts[strings.ToLower(host)] = true
		}
	}
	return g
}

// Loopback reports whether only this machine can reach an address.
func Loopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Origin reports whether pages of an origin may read answers.
func (g *Gate) Origin(origin string) bool { return g.origins[origin] }

// Socket reports whether a page of an origin may open a WebSocket at host, the Host of its request.
// Browsers do not apply the same-origin policy to WebSockets. Programs other than browsers send no
// Origin.
func (g *Gate) Socket(origin, host string) bool {
	if origin == "" || g.Origin(origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

var errHost = errors.New("this service is not reached by that name")

// Host reports whether a request with this Host is meant for the listener.
func (g *Gate) Host(host string) error {
	if g.hosts == nil || host == "" { // HTTP/1.0 clients may send no Host; browsers always send one
		return nil
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil { // no port
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if g.hosts[name] || strings.HasSuffix(name, ".localhost") {
		return nil
	}
	if ip, err := netip.ParseAddr(name); err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	return errHost
}

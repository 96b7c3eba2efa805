// Package gate decides which web pages may talk to this service.
//
// A browser sends requests to any address that a page names. What keeps pages of strangers from reading the answers is the
// browser's same-origin policy, which an allow-list opens for some (CORS). What gets around it is a name that a stranger's DNS
// points at this machine: such a page is of the same origin, but its requests have that name as their Host.
package gate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// A List is a flag.Value of strings, which may be repeated, or separated by commas.
type List []string

// String returns the list as Set reads it.
func (l *List) String() string { return strings.Join(*l, ",") }

// Set adds to the list.
func (l *List) Set(text string) error {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			*l = append(*l, item)
		}
	}
	return nil
}

// CheckOrigins reports the first of the list that is no origin. There is no wildcard: a service on loopback, which asks for no
// key, would be readable by every page there is.
func CheckOrigins(origins List) error {
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || origin != u.Scheme+"://"+u.Host || origin != strings.ToLower(origin) {
			return fmt.Errorf("%q is no origin; one is scheme://host, or scheme://host:port, in lower case", origin)
		}
	}
	return nil
}

// CheckHosts reports the first of the list that is no host name.
func CheckHosts(hosts List) error {
	for _, host := range hosts {
		if strings.ContainsAny(host, "/:@ ") && !isIP(host) {
			return fmt.Errorf("%q is no host name; leave out scheme and port", host)
		}
	}
	return nil
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// A Gate knows who may pass.
type Gate struct {
	origins map[string]bool
	hosts   map[string]bool // nil if any will do
}

// New returns the gate of a listener. Hosts are checked on loopback only: a listener that others reach is behind names that it
// does not know, and what DNS rebinding is after is what others do not reach. A nil listen is no loopback.
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

var errHost = errors.New("this service is not reached by that name")

// Host reports whether a request with this Host is meant for the listener.
func (g *Gate) Host(host string) error {
	if g.hosts == nil || host == "" { // clients of HTTP/1.0 name none; browsers always do
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

package image

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

const (
	maxRedirects = 3
	dialTimeout  = 5 * time.Second
	maxHeaders   = 64 << 10
)

var (
	errPrivate   = errors.New("the address is not public")
	errRedirects = errors.New("too many redirects")
	errScheme    = errors.New("the scheme is not allowed")
	errPort      = errors.New("the port is not allowed")
)

// dialer returns a dialer that connects only to public addresses. Control gets the address that the
// socket connects to, after the name was resolved.
func dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || !public(to.Addr()) {
			return errPrivate
		}
		return nil
	}}
}

// newFetcher returns a fetcher that connects with d. The fetcher uses no proxy, which would resolve
// names itself, and keeps no connections and no cookies.
func newFetcher(limits Limits, d *net.Dialer) *Fetcher {
	f := &Fetcher{limits: limits, places: newPlaces()}
	f.client = &http.Client{
		Transport: &http.Transport{
			DialContext: d.DialContext, TLSHandshakeTimeout: dialTimeout, DisableKeepAlives: true, DisableCompression: true,
			MaxResponseHeaderBytes: maxHeaders,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			req.Header.Del("Referer") // it would reveal one server's URL to another
			switch {
			case len(via) > maxRedirects:
				return errRedirects
			case !f.allows(req.URL) || req.URL.User != nil:
				return errScheme
			case !f.reaches(req.URL):
				return errPort
			default:
				return nil
			}
		},
	}
	return f
}

// reserved are ranges outside the public Internet that netip's predicates do not cover, and ranges
// that lead to such addresses.
var reserved = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "168.63.129.16/32" /* Azure's metadata */, "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/32", "2001:2::/48", "2001:10::/28", "2001:20::/28",
	"2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
)

func prefixes(all ...string) []netip.Prefix {
	parsed := make([]netip.Prefix, len(all))
	for i, text := range all {
		parsed[i] = netip.MustParsePrefix(text)
	}
	return parsed
}

// public reports whether an address belongs to the public Internet. Loopback, private and local
// networks (also RFC 4193), the metadata services of clouds, and tunnel addresses that contain
// another address do not.
func public(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && a.Zone() == "" && a.IsGlobalUnicast() && !a.IsPrivate() &&
		!slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}

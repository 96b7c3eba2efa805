package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/whence-dev/whence/internal/certfiles"
)

// An Identity is the identity of this process, and its rules for peers. A nil Identity stands for
// plain TCP.
type Identity struct {
	config Config
	log    *slog.Logger
	files  certfiles.Files
	quiet  quiet
}

// ServerTLS returns the configuration of a server, or nil for plain TCP.
func (i *Identity) ServerTLS() *tls.Config {
	if i == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return i.files.Get().Cert, nil
		},
		ClientAuth: tls.RequireAnyClientCert, // VerifyConnection verifies the certificate, with the current authorities
		VerifyConnection: func(s tls.ConnectionState) error {
			return i.verify(s, x509.ExtKeyUsageClientAuth, "--mtls-callers", i.config.Callers, "")
		},
		SessionTicketsDisabled: true, // every connection is verified with the current files
	}
}

// ClientTLS returns the configuration of a client of the service at target, a host:port. It returns
// nil for plain TCP.
func (i *Identity) ClientTLS(target string) *tls.Config {
	if i == nil {
		return nil
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		host = target
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: host,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return i.files.Get().Cert, nil
		},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies the certificate, with the current authorities
		VerifyConnection: func(s tls.ConnectionState) error {
			err := i.verify(s, x509.ExtKeyUsageServerAuth, "--mtls-callees", i.config.Callees, host)
			if err != nil {
				if skipped, ok := i.quiet.due(calleeRefused); ok {
					i.log.Warn(calleeRefused, "target", target, "err", err, moreKey, skipped)
				}
			}
			return err
		},
	}
}

// ServerCredentials returns the credentials of a grpc-go server. They log refused callers.
func (i *Identity) ServerCredentials() credentials.TransportCredentials {
	if i == nil {
		return insecure.NewCredentials()
	}
	return doorman{credentials.NewTLS(i.ServerTLS()), i}
}

// ClientCredentials returns the credentials of a grpc-go client of the service at target.
func (i *Identity) ClientCredentials(target string) credentials.TransportCredentials {
	if i == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(i.ClientTLS(target))
}

// Refused logs that the handshake of a caller failed.
func (i *Identity) Refused(caller net.Addr, err error) {
	if i == nil {
		return
	}
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) {
		err = errors.New("the caller does not use TLS")
	}
	if skipped, ok := i.quiet.due(callerRefused); ok {
		i.log.Warn(callerRefused, "peer", caller.String(), "err", err, moreKey, skipped)
	}
}

// verify returns why a peer is not accepted. Accepted names are in the flag; host is the dialed
// host of a callee.
func (i *Identity) verify(s tls.ConnectionState, usage x509.ExtKeyUsage, flag string, accepted Names, host string) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the peer has no certificate")
	}
	leaf := s.PeerCertificates[0]
	names := namesOf(leaf)
	intermediates := x509.NewCertPool()
	for _, cert := range s.PeerCertificates[1:] {
		intermediates.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: i.files.Get().Roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return fmt.Errorf("the certificate of %s is not valid: %w", names, err)
	}
	if len(leaf.URIs) > 1 {
		return fmt.Errorf("the certificate of %s has %d URIs; it must have at most one", names, len(leaf.URIs))
	}
	if len(accepted) == 0 && host != "" {
		return leaf.VerifyHostname(host)
	}
	if !slices.ContainsFunc(accepted, func(name string) bool { return has(leaf, name) }) {
		return fmt.Errorf("%s is not among the names of %s", names, flag)
	}
	return nil
}

// has reports whether a certificate has a name. A name with a scheme is compared with the URIs only:
// an authority may let its clients choose DNS names, and such a name may be spelled like a URI. DNS
// names do not depend on case.
func has(leaf *x509.Certificate, name string) bool {
	if strings.Contains(name, "://") {
		return slices.ContainsFunc(leaf.URIs, func(uri *url.URL) bool { return uri.String() == name })
	}
	return slices.ContainsFunc(leaf.DNSNames, func(dns string) bool { return strings.EqualFold(dns, name) })
}

// shownNames bounds the names, and shownBytes the bytes, of a certificate in a log line.
const (
	shownNames = 4
	shownBytes = 512
)

// namesOf returns the names of a certificate for the log.
func namesOf(leaf *x509.Certificate) string {
	var names []string
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	names = append(names, leaf.DNSNames...)
	text := strings.Join(names[:min(len(names), shownNames)], ", ")
	if text == "" {
		text = leaf.Subject.String() + " (without a URI or DNS name)"
	}
	return fmt.Sprintf("%.*q", shownBytes, text)
}

// The log lines about refused peers. Each appears at most once per quietFor; the attribute moreKey
// is the number of refusals since the last line.
const (
	callerRefused = "a caller was refused before any call: mutual TLS failed"
	calleeRefused = "a callee was refused: its certificate is not accepted"
	moreKey       = "more_since_last_line"
)

// quietFor is the minimum time between two log lines with the same message.
const quietFor = time.Second

// quiet bounds the log lines about refused peers.
type quiet struct {
	mu   sync.Mutex
	last map[string]silence // by message, of which there are a few
}

// A silence is the time since a log line.
type silence struct {
	since   time.Time
	skipped int // lines
}

// due reports whether a line may be logged, and how many lines were skipped before it.
func (q *quiet) due(msg string) (skipped int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last == nil {
		q.last = map[string]silence{}
	}
	s := q.last[msg]
	if time.Since(s.since) < quietFor {
		s.skipped++
		q.last[msg] = s
		return 0, false
	}
	q.last[msg] = silence{since: time.Now()}
	return s.skipped, true
}

// A doorman logs the callers that its credentials refuse.
type doorman struct {
	credentials.TransportCredentials
	identity *Identity
}

// ServerHandshake implements credentials.TransportCredentials.
func (d doorman) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, auth, err := d.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		d.identity.Refused(raw.RemoteAddr(), err)
	}
	return conn, auth, err
}

// Clone implements credentials.TransportCredentials.
func (d doorman) Clone() credentials.TransportCredentials {
	return doorman{d.TransportCredentials.Clone(), d.identity}
}

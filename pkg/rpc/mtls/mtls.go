// Package mtls authenticates the connections between our own services with mutual TLS: each end
// proves its name with a certificate, and each end has a list of the names that it accepts.
//
// A name is a URI in the certificate, such as spiffe://example.org/ns/prod/sa/chat-service, or a
// DNS name. A peer without an accepted name is refused during the handshake, before any call, and
// the log names the peer and the reason. Certificates, keys and authorities are read from files,
// which are read again while the process runs: a rotated certificate is used for new connections.
package mtls

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"

	"github.com/whence-dev/whence/internal/certfiles"
)

// A Config configures one service. The zero value disables mutual TLS.
type Config struct {
	Cert, Key string // PEM files with the service's certificate chain and key
	CA        string // PEM file with the authorities of all services
	Callers   Names  // names of the services that may call this service
	// Callees are the names of the services that this service may call. If empty, the certificate
	// of a callee must be valid for the host that was dialed.
	Callees Names
}

// Names is a list of names, as a flag: repeated, or separated by commas.
type Names []string

// String implements flag.Value.
func (n *Names) String() string { return strings.Join(*n, ",") }

// Set implements flag.Value. It appends the names in s.
func (n *Names) Set(s string) error {
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			return errors.New("a name is empty")
		}
		*n = append(*n, name)
	}
	return nil
}

// Flags adds the flags that all services have to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Cert, "mtls-cert", "", "`file` with this service's certificate chain (PEM) for mutual TLS between services; empty disables mutual TLS")
	fs.StringVar(&c.Key, "mtls-key", "", "`file` with the key (PEM) of --mtls-cert")
	fs.StringVar(&c.CA, "mtls-ca", "", "`file` with the certificate authorities (PEM) of all services")
}

// CallerFlags adds the flags of a service that calls other services to fs.
func (c *Config) CallerFlags(fs *flag.FlagSet) {
	fs.Var(&c.Callees, "mtls-callees", "`name` in the certificates of the services that this service calls, such as spiffe://example.org/ns/prod/sa/llm-worker or a DNS name; repeated, or separated by commas; empty: the certificate must be valid for the dialed host")
}

// CalleeFlags adds the flags of a service that other services call to fs.
func (c *Config) CalleeFlags(fs *flag.FlagSet) {
	fs.Var(&c.Callers, "mtls-callers", "`name` in the certificates of the services that may call this service, such as spiffe://example.org/ns/prod/sa/chat-service or a DNS name; repeated, or separated by commas")
}

// On reports whether mutual TLS is enabled.
func (c *Config) On() bool { return c.Cert != "" }

// Validate checks c.
func (c *Config) Validate() error {
	if !c.On() && (c.Key != "" || c.CA != "" || len(c.Callers) > 0 || len(c.Callees) > 0) {
		return errors.New("the flags of mutual TLS need --mtls-cert")
	}
	if c.On() && (c.Key == "" || c.CA == "") {
		return errors.New("--mtls-cert, --mtls-key and --mtls-ca must be given together")
	}
	return nil
}

// ValidateCallee checks the c of a service that other services call.
func (c *Config) ValidateCallee() error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.On() && len(c.Callers) == 0 {
		return errors.New("--mtls-cert needs --mtls-callers: the names of the services that may call this service")
	}
	return nil
}

// Open reads the files. It returns nil if c disables mutual TLS.
func (c *Config) Open(log *slog.Logger) (*Identity, error) {
	if !c.On() {
		return nil, nil //nolint:nilnil // a nil Identity is plain TCP
	}
	i := &Identity{config: *c, log: log, files: certfiles.Files{Cert: c.Cert, Key: c.Key, CA: c.CA, Use: "mutual TLS", Log: log}}
	if err := i.files.Load(); err != nil {
		return nil, fmt.Errorf("mutual TLS: %w", err)
	}
	return i, nil
}

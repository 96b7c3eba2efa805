package connection

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"

	"golang.org/x/net/http2"

	"github.com/whence-dev/whence/internal/certfiles"
)

// A Certificate names the PEM files of a server's certificate. The zero value is that of a server
// without TLS.
type Certificate struct{ Cert, Key string }

// Flags adds the flags of c.
func (c *Certificate) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Cert, "tls-cert", "", "`file` with the certificate chain (PEM) for TLS and HTTP/2; empty for plain HTTP/1.1")
	fs.StringVar(&c.Key, "tls-key", "", "`file` with the key (PEM) of --tls-cert")
}

// Validate checks c.
func (c *Certificate) Validate() error {
	if (c.Cert == "") != (c.Key == "") {
		return errors.New("--tls-cert and --tls-key must be given together")
	}
	return nil
}

// On reports whether c has files.
func (c *Certificate) On() bool { return c.Cert != "" }

// Open returns the configuration of TLS for a Server, or nil without TLS. The files are read again after
// a change.
func (c *Certificate) Open(log *slog.Logger) (*tls.Config, error) {
	if !c.On() {
		return nil, nil //nolint:nilnil // as the comment says
	}
	files := &certfiles.Files{Cert: c.Cert, Key: c.Key, Use: "HTTPS", Log: log}
	if err := files.Load(); err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{http2.NextProtoTLS, "http/1.1"},
		DynamicRecordSizingDisabled: true, // events are small, and of a batch none waits for another record
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return files.Get().Cert, nil
		},
	}, nil
}

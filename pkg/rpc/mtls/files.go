package mtls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// checkEvery is the minimum time between checks of the files. Only handshakes check the files.
const checkEvery = time.Second

// A material is the content of the files at one time.
type material struct {
	cert  *tls.Certificate
	roots *x509.CertPool
}

// files has the latest valid content of the files.
type files struct {
	mu      sync.Mutex // guards the following fields
	current material
	content [3][]byte // of the files when current was read
	checked time.Time
	failure string // of the last check; "" after a success
}

// get returns the content of the files. If they cannot be read, or do not match, the old content
// stays in use.
func (f *files) get(c *Config, log *slog.Logger) material {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) < checkEvery {
		return f.current
	}
	before := f.current.cert
	err := f.read(c)
	switch {
	case err != nil && err.Error() != f.failure:
		f.failure = err.Error()
		log.Error("the new files of mutual TLS cannot be used; the old certificate stays in use", "err", err)
	case err == nil && f.current.cert != before:
		log.Info("mutual TLS uses new files for new connections", "not_after", f.current.cert.Leaf.NotAfter)
	}
	if err == nil {
		f.failure = ""
	}
	return f.current
}

// load reads the files for the first time.
func (f *files) load(c *Config) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read(c)
}

// read reads the files, and replaces current if they have changed. mu is held.
func (f *files) read(c *Config) error {
	f.checked = time.Now()
	var content [3][]byte
	for i, name := range []string{c.Cert, c.Key, c.CA} {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		content[i] = b
	}
	same := func(i int) bool { return bytes.Equal(content[i], f.content[i]) }
	if f.current.cert != nil && same(0) && same(1) && same(2) {
		return nil
	}
	cert, err := tls.X509KeyPair(content[0], content[1])
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.Cert, c.Key, err)
	}
	if cert.Leaf == nil {
		return errors.New(c.Cert + " has no certificate")
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content[2]) {
		return errors.New(c.CA + " has no certificate")
	}
	f.current, f.content = material{&cert, roots}, content
	return nil
}

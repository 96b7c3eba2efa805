// Package certfiles reads the certificates of TLS from files, and reads them again after a change.
package certfiles

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

// checkEvery is the minimum time between checks of the files. Only Get checks them, so that an idle
// service does not.
const checkEvery = time.Second

// Content is the content of the files at one time.
type Content struct {
	Cert  *tls.Certificate
	Roots *x509.CertPool // nil without a file of authorities
}

// Files are PEM files. Files compares their content, not their modification times, because a tool
// may keep the times of files that it copies.
type Files struct {
	Cert, Key string // the chain and its key
	CA        string // the authorities; empty for none
	Use       string // what the files are for, in log lines
	Log       *slog.Logger

	mu      sync.Mutex // guards the following fields
	current Content
	read    [3][]byte // the bytes of current
	checked time.Time
	failure string // of the last check; "" after a success
}

// Load reads the files for the first time.
func (f *Files) Load() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.update()
}

// Get returns the content of the files. If they cannot be read, or do not match, the old content
// stays in use.
func (f *Files) Get() Content {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) < checkEvery {
		return f.current
	}
	before := f.current.Cert
	err := f.update()
	switch {
	case err != nil && err.Error() != f.failure:
		f.failure = err.Error()
		f.Log.Error("the new certificate files cannot be used; the old ones stay in use", "use", f.Use, "err", err)
	case err == nil && f.current.Cert != before:
		f.Log.Info("new connections use the new certificate files", "use", f.Use, "not_after", f.current.Cert.Leaf.NotAfter)
	}
	if err == nil {
		f.failure = ""
	}
	return f.current
}

// update reads the files, and replaces current if they have changed. mu is held.
func (f *Files) update() error {
	f.checked = time.Now()
	var read [3][]byte
	same := f.current.Cert != nil
	for i, name := range []string{f.Cert, f.Key, f.CA} {
		if name == "" {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		read[i] = b
		same = same && bytes.Equal(b, f.read[i])
	}
	if same {
		return nil
	}
	cert, err := tls.X509KeyPair(read[0], read[1])
	if err != nil {
		return fmt.Errorf("%s and %s: %w", f.Cert, f.Key, err)
	}
	if cert.Leaf == nil {
		return errors.New(f.Cert + " has no certificate")
	}
	var roots *x509.CertPool
	if f.CA != "" {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(read[2]) {
			return errors.New(f.CA + " has no certificate")
		}
	}
	f.current, f.read = Content{&cert, roots}, read
	return nil
}

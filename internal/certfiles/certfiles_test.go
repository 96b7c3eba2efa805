package certfiles_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/internal/certfiles"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/pkg/rpc/mtls/mtlstest"
)

// TestChangedFilesAreReadAgain: whatever their times of modification say. Files that cannot be used
// leave the old certificate in use, and the log says so once.
func TestChangedFilesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := mtlstest.NewAuthority(t)
		dir := t.TempDir()
		cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		long := time.Now().Add(-24 * time.Hour)
		replace := func(to, from string) {
			t.Helper()
			b, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, b, 0o600)
			}
			if err == nil {
				err = os.Chtimes(to, long, long)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		first, second := mtlstest.NewPair(t), mtlstest.NewPair(t)
		a.Issue(t, first, "spiffe://example.org/first")
		a.Issue(t, second, "spiffe://example.org/second")
		replace(cert, first.Cert)
		replace(key, first.Key)
		var log logtest.Log
		f := &certfiles.Files{Cert: cert, Key: key, Use: "a test", Log: slog.New(slog.NewTextHandler(&log, nil))}
		if err := f.Load(); err != nil {
			t.Fatal(err)
		}
		serves := func(name string) {
			t.Helper()
			for range 3 {
				time.Sleep(2 * time.Second)
				if c := f.Get(); c.Roots != nil || c.Cert.Leaf.URIs[0].String() != "spiffe://example.org/"+name {
					t.Errorf("it serves %v, want %s", c.Cert.Leaf.URIs, name)
				}
			}
		}
		serves("first")
		if log.String() != "" {
			t.Errorf("it logs:\n%s", &log)
		}
		replace(cert, second.Cert)
		serves("first") // the key does not match yet
		if n := log.Count("the new certificate files cannot be used; the old ones stay in use"); n != 1 || !strings.Contains(log.String(), "key.pem") {
			t.Errorf("it logs %d times:\n%s", n, &log)
		}
		replace(key, second.Key)
		serves("second")
		if n := log.Count(`msg="new connections use the new certificate files" use="a test"`); n != 1 {
			t.Errorf("it logs %d times:\n%s", n, &log)
		}
	})
}

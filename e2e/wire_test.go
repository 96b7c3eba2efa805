package e2e

import (
	"bytes"
	"testing"

	"github.com/whence-dev/whence/lab"
)

// wired returns a wire in front of a service, until the end of the test.
func wired(t *testing.T, addrs ...string) *lab.Wire {
	t.Helper()
	w, err := lab.NewWire(addrs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.End)
	return w
}

// cutting returns a wire in front of an api-service that cuts the first n answers.
func cutting(t *testing.T, addr string, n int, seed uint64) *lab.Wire {
	t.Helper()
	w := wired(t, addr)
	w.Rewrite = shortenRetry
	w.CutAnswers(n, seed)
	return w
}

// shortenRetry shortens the retry hint, so that readers reconnect sooner. It keeps the length,
// which was sent before.
func shortenRetry(answer []byte) []byte {
	return bytes.Replace(answer, []byte("retry: 1000\n"), []byte("retry: 0100\n"), 1)
}

package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A buffer that several loggers write to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func TestEveryHopSaysWhoEndedTheStream(t *testing.T) {
	var out buffer
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"front: got 5",
		"front: the stream ended: client gone: the user closed the tab [user]",
		`hop=middle reason=client_gone origin=user path="user > front > middle"`,
		`hop=leaf reason=client_gone origin=user path="user > front > middle > leaf"`,
	} {
		if !strings.Contains(out.b.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.b.String())
		}
	}
}

package main

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

func TestMain(m *testing.M) {
	kitexrpc.LogTo(io.Discard)
	leaktest.Main(m)
}

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

func TestEveryHopReportsWhoEndedEachStream(t *testing.T) {
	var out buffer
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	said := out.b.String()
	for _, want := range []string{"front: got number 5\n", "front: got status SERVING\n", "front: got status NOT_SERVING\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing:\n%s", want, said)
		}
	}
	for _, want := range []string{ // of both streams
		"front: the stream ended: client gone: the user closed the tab [user]",
		`hop=middle reason=client_gone origin=user path="user > front > middle"`,
		`hop=leaf reason=client_gone origin=user path="user > front > middle > leaf"`,
	} {
		if strings.Count(said, want) != 2 {
			t.Errorf("%q occurs %d times, not twice:\n%s", want, strings.Count(said, want), said)
		}
	}
}

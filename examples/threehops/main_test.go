package main

import (
	"io"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

func TestMain(m *testing.M) {
	kitexrpc.LogTo(io.Discard)
	leaktest.Main(m)
}

func TestEveryHopReportsWhoEndedEachStream(t *testing.T) {
	var out logtest.Log
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	said := out.String()
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

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

// TestTheUserClosesTheTab: the model and each hop log the cause, once.
func TestTheUserClosesTheTab(t *testing.T) {
	var out logtest.Log
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	said := out.String()
	for _, want := range []string{
		"browser: got What\nbrowser: got happens\nbrowser: got when\nbrowser: got I\nbrowser: got close\n",
		`cause="client gone: the user closed the tab [browser > api > chat]"`,
		`hop=llm reason=client_gone origin=browser path="browser > api > chat > llm"`,
		`hop=chat reason=client_gone origin=browser path="browser > api > chat"`,
		`hop=api reason=client_gone origin=browser path="browser > api"`,
	} {
		if strings.Count(said, want) != 1 {
			t.Errorf("%q occurs %d times, not once, in\n%s", want, strings.Count(said, want), said)
		}
	}
}

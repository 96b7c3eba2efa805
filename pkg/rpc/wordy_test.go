package rpc_test

import (
	"strings"
	"testing"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestMessageOfAStopIsBounded: a ledger keeps ten thousand of these messages.
func TestMessageOfAStopIsBounded(t *testing.T) {
	svc := newService("worker", newCounter().generate)
	client := workerv1.NewWorkerClient(dialGRPC(t, serveGRPC(t, svc)))
	st, err := client.Generate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req := ask(1 << 30)()
	req.StreamId = "wordy"
	if err := st.Send(methods.Worker.Open(req)); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); err != nil {
		t.Fatal(err)
	}
	stop := &streamv1.Stop{Reason: streamv1.Reason_REASON_USER_STOP, Message: strings.Repeat("x", 1<<20), Path: []string{"client"}}
	if err := st.Send(methods.Worker.Stop(stop)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = st.Recv()
	}
	r := ledger.At(svc.hop).Get("wordy")
	if streamerr.Reason(r.GetReason()) != streamerr.UserStop || len(r.GetMessage()) > 4<<10 || !strings.HasPrefix(r.GetMessage(), "xxx") {
		t.Errorf("%v, a message of %d bytes", r.GetReason(), len(r.GetMessage()))
	}
}

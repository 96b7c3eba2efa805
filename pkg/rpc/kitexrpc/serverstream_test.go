package kitexrpc

import (
	"context"
	"net"
	"testing"

	"github.com/cloudwego/kitex/pkg/kerrors"
	kcodes "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/codes"
	kstatus "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/status"
	"github.com/cloudwego/kitex/pkg/streaming"
	"google.golang.org/grpc/peer"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/connloss"
	"github.com/whence-dev/whence/pkg/rpc/wire"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A refusingStream sends no messages.
type refusingStream struct {
	streaming.Stream

	err error
}

func (s refusingStream) SendMsg(any) error { return s.err }

// TestMessageRefusedBeforeTheCallEnds: when a connection breaks, Kitex first refuses messages, and then
// ends the contexts of the calls.
func TestMessageRefusedBeforeTheCallEnds(t *testing.T) {
	for err, want := range map[error]bool{
		kstatus.Err(kcodes.Canceled, "transport: connection EOF [triggered by remote service]"): true,
		kerrors.ErrRemoteOrNetwork: false,
	} {
		from := &lossAddr{Addr: &net.TCPAddr{}, call: context.Background()}
		s := &serverStream{st: refusingStream{err: err}, codec: codecOf(false, false), from: from}
		if s.SendMsg(&workerv1.GenerateResponse{}) == nil {
			t.Error("the message was sent")
		}
		if got := connloss.Lost(peer.NewContext(t.Context(), &peer.Peer{Addr: from})); got != want {
			t.Errorf("%v: lost is %v", err, got)
		}
	}
}

// An endedCall is the context of a call that Kitex has ended with an error.
type endedCall struct {
	context.Context

	err error
}

func (c endedCall) Err() error { return c.err }

// TestConnectionThatBrokeUnderAWrite: Kitex ends its calls as if it shut down.
func TestConnectionThatBrokeUnderAWrite(t *testing.T) {
	for err, want := range map[error]streamerr.Reason{
		kstatus.Err(kcodes.Unavailable, "graceful shutdown"):                                    streamerr.PeerLost,
		kstatus.Err(kcodes.Canceled, "transport: RSTStream Frame received with error code: NO"): streamerr.PeerReset,
	} {
		call := endedCall{t.Context(), err}
		if got := wire.Lost(peer.NewContext(call, &peer.Peer{Addr: &lossAddr{Addr: &net.TCPAddr{}, call: call}})); got.Reason != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

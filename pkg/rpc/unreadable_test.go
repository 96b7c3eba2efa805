package rpc_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A rawCodec sends bytes unchanged, under the name of protobuf's codec.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, _ := v.([]byte)
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}
func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

// TestStopBehindAnUnreadableMessage: the Stop is the cause if the library continues to read;
// otherwise the message is.
func TestStopBehindAnUnreadableMessage(t *testing.T) {
	for _, srv := range servers {
		for _, stops := range []bool{true, false} {
			leaf := newCounter()
			cc := dialGRPC(t, srv.serve(t, newService("worker", leaf.generate)))
			st, err := cc.NewStream(t.Context(), &workerv1.Worker_ServiceDesc.Streams[0], workerv1.Worker_Generate_FullMethodName, grpc.ForceCodecV2(rawCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			sends := [][]byte{message(t, methods.Worker.Open(ask(1<<30)()))[5:], {0xff, 0xff, 0xff}}
			if stops {
				stop := methods.Worker.Stop(&streamv1.Stop{Reason: streamv1.Reason_REASON_USER_STOP, Path: []string{"client"}})
				sends = append(sends, message(t, stop)[5:])
			}
			for _, b := range sends {
				if err := st.SendMsg(b); err != nil {
					t.Fatal(err)
				}
			}
			want := streamerr.Invalid
			if stops {
				want = streamerr.UserStop
			}
			got := streamerr.As(<-leaf.causes)
			if stops && srv.name == "grpc-go" && got.Reason == streamerr.Invalid {
				continue // grpc-go has ended the call because of the message, before the Stop arrived
			}
			if got.Reason != want {
				t.Errorf("%s: stopped with %v, want %v", srv.name, got, want)
			}
			for err == nil {
				err = st.RecvMsg(nil)
			}
		}
	}
}

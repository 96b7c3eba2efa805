package ttrpc_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"google.golang.org/grpc"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
)

// A slowStream takes some time to send a message.
type slowStream struct {
	streaming.ServerStream
	takes time.Duration
}

func (s slowStream) SendMsg(context.Context, any) error {
	time.Sleep(s.takes)
	return nil
}

// TestEndWaitsForAMessage: a call ends after the message that another goroutine is sending, but
// waits at most a second, and no message follows the end.
func TestEndWaitsForAMessage(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{300 * time.Millisecond: 300 * time.Millisecond, time.Minute: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var st grpc.ServerStream
			sent := make(chan error, 1)
			ctx := rpcinfo.NewCtxWithRPCInfo(t.Context(), rpcinfo.NewRPCInfo(nil, nil, nil, nil, nil))
			err := ttrpc.Serve(ctx, slowStream{takes: takes}, "whence.chat.v1.Chat/Generate", 1<<20, func(s grpc.ServerStream) error {
				st = s
				go func() { sent <- st.SendMsg(&chatv1.GenerateResponse{}) }()
				synctest.Wait()
				return nil
			})
			if took := time.Since(began); err != nil || took != want {
				t.Errorf("Serve returned %v after %v, want %v", err, took, want)
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
			if err := st.SendMsg(&chatv1.GenerateResponse{}); takes < time.Second && err == nil {
				t.Error("a message followed the end")
			}
		})
	}
}

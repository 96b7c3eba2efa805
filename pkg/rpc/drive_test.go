package rpc_test

import (
	"testing"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestStreamThatNobodyReadsRunsOnUncounted(t *testing.T) {
	s := newService("hop", newCounter().generate)
	id, sent := "", 0
	ctx, end, err := s.hop.Begin(t.Context(), &id, "", "", func() *streamerr.Error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	o := rpc.Drive(ctx, s.hop, methods.Worker, s.engine, &workerv1.TokenRequest{Prompt: []uint32{9}}, func(*workerv1.GenerateResponse) error {
		if sent++; sent > 4 {
			return rpc.ErrUndelivered
		}
		return nil
	})
	if r := ledger.At(s.hop).Get(id); o.Reason() != streamerr.Completed || r.GetTokensOut() != 4 || sent != 10 {
		t.Error(o, r, sent)
	}
}

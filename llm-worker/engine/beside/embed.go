package beside

import (
	"cmp"
	"context"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An EmbedCall is one request to the server for vectors.
type EmbedCall interface {
	// Do sends the request and returns the answer, without the model's name. It uses only the
	// values of ctx; Stop ends it.
	Do(ctx context.Context) (*workerv1.EmbedResponse, error)
	// Stop is the same as Call.Stop.
	Stop() (confirmed bool)
}

// Embed computes the vectors of texts; stream.Unary makes an engine of it.
func (e *Engine) Embed(ctx context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	up := e.upstream.Load()
	switch {
	case up == nil:
		return nil, e.unavailable()
	case up.AskEmbed == nil:
		return nil, streamerr.InvalidParam("model", "the server that generates (%s) does not support embeddings", up.Capabilities.GetUpstream())
	}
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.running.Add(-1)
	call, err := up.AskEmbed(req)
	if err != nil {
		return nil, err
	}
	stopped := make(chan struct{})
	undo := stream.AfterStop(ctx, func(error) {
		defer close(stopped)
		if call.Stop() {
			ledger.Of(ctx).Confirmed()
		}
	})
	resp, err := call.Do(ctx)
	if undo() {
		call.Stop()
	} else {
		<-stopped
	}
	if err == nil {
		resp.Model = cmp.Or(e.opts.Name, up.Name)
		return resp, nil
	}
	if cause := stream.Cause(ctx); cause != nil {
		return nil, cause // the server's own error is a consequence of the stop
	}
	e.suspect(err)
	return nil, err
}

// TryEmbed sends a request for vectors and discards the answer, like Drain.
func TryEmbed(ctx context.Context, call EmbedCall) error {
	undo := context.AfterFunc(ctx, func() { call.Stop() })
	_, err := call.Do(ctx)
	if !undo() && err != nil {
		err = context.Cause(ctx)
	}
	call.Stop()
	return err
}

package redislog

import (
	"context"
	"errors"

	"github.com/whence-dev/whence/api-service/replay"
)

// A localReader reads a stream of this instance. If another instance takes the stream over, the
// reader continues to read from the server.
type localReader struct {
	replay.Reader
	log    *Log
	remote bool // the reader reads from the server
}

// Read implements replay.Reader.
func (r *localReader) Read(ctx context.Context, after uint64) (replay.Page, error) {
	p, err := r.Reader.Read(ctx, after)
	if r.moved(ctx, err) {
		return r.Reader.Read(ctx, after)
	}
	return p, err
}

// Closing implements replay.Reader.
func (r *localReader) Closing(ctx context.Context) (replay.Event, error) {
	e, err := r.Reader.Closing(ctx)
	if r.moved(ctx, err) {
		return r.Reader.Closing(ctx)
	}
	return e, err
}

// moved makes the reader read from the server if err says that the stream is no longer here, and
// the server has the stream.
func (r *localReader) moved(ctx context.Context, err error) bool {
	if r.remote || !errors.Is(err, replay.ErrUnknown) || !r.Head().Shared {
		return false
	}
	there, err := r.log.openRemote(ctx, r.Head().ID)
	if err != nil || there.Head().Epoch != r.Head().Epoch {
		return false // the stream was forgotten
	}
	r.Close()
	r.Reader, r.remote = there, true
	return true
}

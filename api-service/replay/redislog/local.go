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
	if r.remote || !errors.Is(err, replay.ErrUnknown) || !r.Head().Shared {
		return p, err
	}
	there, opening := r.log.openRemote(ctx, r.Head().ID)
	if opening != nil || there.Head().Epoch != r.Head().Epoch {
		return p, err // the stream was forgotten
	}
	r.Close()
	r.Reader, r.remote = there, true
	return there.Read(ctx, after)
}

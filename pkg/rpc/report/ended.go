package report

import (
	"context"
	"log/slog"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An Ending is how a stream ended on a hop: with End, or with Err.
type Ending struct {
	End    *streamerr.Ending
	Err    *streamerr.Error
	Reason streamerr.Reason
	Path   streamerr.Path
	Took   time.Duration
}

// Ended logs the one line for a stream that has ended on a hop.
func Ended(ctx context.Context, log *slog.Logger, hop string, e Ending) {
	attrs := []slog.Attr{
		slog.String("stream", stream.ID(ctx)),
		slog.String("hop", hop),
		slog.String("reason", e.Reason.String()),
		slog.String("origin", e.Path.Origin()),
		slog.String("path", e.Path.String()),
		slog.Duration("took", e.Took),
	}
	attrs = append(attrs, observer.Of(ctx).LogAttrs()...)
	if e.Err != nil {
		attrs = append(attrs, slog.String("message", e.Err.Text()))
		if e.Err.Cause != nil && e.Err.Message != "" {
			attrs = append(attrs, slog.String("cause", e.Err.Cause.Error()))
		}
	} else if e.End != nil {
		attrs = append(attrs, e.End.Attrs...)
	}
	if log.Enabled(ctx, slog.LevelInfo) {
		line := slog.NewRecord(time.Now(), slog.LevelInfo, "stream ended", 0) // a Logger would look up its caller
		line.AddAttrs(attrs...)
		_ = log.Handler().Handle(ctx, line) // a Logger ignores the error, too
	}
}

package redislog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/whence-dev/whence/api-service/replay"
)

// head returns the head of a stream on the server.
func (l *Log) head(ctx context.Context, id string) (replay.Head, error) {
	fields, err := l.db.HGetAll(ctx, headKey(id)).Result()
	l.answered(err)
	if err != nil {
		return replay.Head{}, unavailable(err)
	}
	h, _, err := parseHead(id, fields)
	if errors.Is(err, errAnswer) {
		l.config.Log.Warn("redis has something else in place of a stream", "stream", id, "err", err)
		return replay.Head{}, unavailable(err)
	}
	return h, err
}

// parseHead returns the head of a stream, and its seams, from the fields of the head on the server.
func parseHead(id string, fields map[string]string) (h replay.Head, seams replay.Seams, err error) {
	if len(fields) == 0 || fields["state"] == stateForgotten {
		return replay.Head{}, nil, replay.ErrUnknown
	}
	h = replay.Head{
		ID: id, Epoch: fields["epoch"], Owner: fields["owner"], Key: fields["key"], Body: fields["body"], Edge: fields["edge"],
		Form: fields["form"], Memo: fields["memo"], Shared: true,
	}
	if h.Began, err = time.Parse(time.RFC3339Nano, fields["began"]); err != nil {
		return replay.Head{}, nil, fmt.Errorf("%w: head of a stream: %w", errAnswer, err)
	}
	if seams, err = replay.ParseSeams(fields["seams"]); err != nil {
		return replay.Head{}, nil, fmt.Errorf("%w: head of a stream: %w", errAnswer, err)
	}
	return h, seams, nil
}

// fields returns the fields of a head that the method head reads, except for the epoch.
func fields(h replay.Head) []any {
	return []any{"owner", h.Owner, "key", h.Key, "body", h.Body, "edge", h.Edge, "form", h.Form, "memo", h.Memo, "began", h.Began.Format(time.RFC3339Nano)}
}

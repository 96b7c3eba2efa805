package readers

import (
	"context"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Translator encodes the events of a log, in order from the first, in the form of another API.
type Translator func(e replay.Event, lines call.Lines) error

// Translate answers a request with the events of a stream in the form of another API. It returns
// when the reader has received the last event or has left.
func (r *Readers) Translate(conn context.Context, c *app.RequestContext, in replay.Reader, t Translator) {
	r.follow(conn, c, in.Head().ID, in, 0, &translation{eventStream: eventStream{keepAlive: r.KeepAlive}, translate: t})
}

// A translation writes events as server-sent events of another API.
type translation struct {
	eventStream
	translate Translator
}

func (s *translation) begin(client *clientconn.Conn, sent func(time.Duration, int), _ func(*streamerr.Error)) error {
	s.open(client, sent)
	return nil
}

// end truncates the body of a reader without the ending: clients of other APIs take a body with a
// clean end for the whole answer.
func (s *translation) end(cause *streamerr.Error, failed bool) {
	s.eventStream.end(cause, failed || cause.Reason != streamerr.Completed)
}

func (s *translation) read(ctx context.Context, in replay.Reader, after uint64) (follow.End, error) {
	return follow.Each(ctx, in, after, func(e replay.Event) error {
		if err := s.translate(e, &s.lines); err != nil {
			return err
		}
		return s.send(deltaCount(string(e.Kind)))
	})
}

package readers

import (
	"context"
	"time"

	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/sse"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An eventStream writes events as server-sent events.
type eventStream struct {
	keepAlive time.Duration // time without an event before a comment; 0 means none
	client    *clientconn.Conn
	lines     sse.Encoder
}

func (s *eventStream) refused() {}

func (s *eventStream) begin(client *clientconn.Conn, sent func(time.Duration, int), _ func(*streamerr.Error)) error {
	s.open(client, sent)
	s.lines.Retry(retryAfter)
	return s.send(0)
}

// open takes over the client's connection.
func (s *eventStream) open(client *clientconn.Conn, sent func(time.Duration, int)) {
	s.client, s.lines.Identity = client, client.Identity()
	client.Begin(clientconn.Events{First: retryAfter, KeepAlive: s.keepAlive, Sent: sent})
}

func (s *eventStream) read(ctx context.Context, in replay.Reader, after uint64) (follow.End, error) {
	return follow.Follow(ctx, in, after, s.event)
}

func (s *eventStream) event(id, name string, data []byte) error {
	s.lines.Event(id, name, data)
	return s.send(deltaCount(name))
}

// deltaCount returns 1 for a delta event, otherwise 0.
func deltaCount(name string) int {
	if name == string(replay.Delta) {
		return 1
	}
	return 0
}

func (s *eventStream) end(_ *streamerr.Error, failed bool) {
	s.client.EndComments()
	if s.lines.Finish(); failed || s.send(0) != nil {
		s.client.Cut() // the stream has not ended, whatever happened to its reader
	}
}

// send writes the encoded events. events is the number of events with text among them.
func (s *eventStream) send(events int) error {
	encoded, _ := s.lines.Take()
	defer s.lines.Release()
	if len(encoded) == 0 {
		return nil
	}
	return s.client.Send(encoded, events)
}

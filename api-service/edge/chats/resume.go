package chats

import (
	"context"
	"maps"
	"time"

	"github.com/whence-dev/whence/api-service/position"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// An Interruption is the state of a stream whose edge has stopped running it.
type Interruption struct {
	From      string            // the edge
	Cause     error             // why it stopped; the ending of the stream if no chat-service resumes it
	Delivered []position.Choice // the part of each choice that readers have received
}

// Resume returns an Engine that continues an interrupted stream, as Start continues a stream whose
// chat-service is lost. It sends Started, and then only what readers have not received.
func (f *Fleet) Resume(i Interruption) Engine {
	return func(ctx context.Context, req *chatv1.ChatRequest, to reader) {
		c := newFailover(ctx, f, req, to)
		c.begun, c.heir, c.ending = true, true, i.Cause
		c.moving, c.from, c.until, c.pause = true, i.From, time.Now().Add(f.within), firstPause
		for choice, part := range i.Delivered[:min(len(i.Delivered), len(c.delivered))] {
			c.delivered[choice] = progressOf(part)
		}
		c.start()
	}
}

// takeOver records that this edge continues the stream of another.
func (c *failover) takeOver() {
	c.move(c.fleet.self)
	c.moved = 0 // moves between chat-services have their own bound
}

// progressOf returns the progress of a choice of which readers have received a part.
func progressOf(part position.Choice) progress {
	return progress{
		end: part.End, ids: part.IDs, text: part.Text, reasoning: part.Reasoning, arguments: maps.Clone(part.Arguments), noted: len(part.IDs),
	}
}

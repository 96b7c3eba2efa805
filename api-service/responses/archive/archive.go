// Package archive replays the events of a stored response, from the memo and the log of its stream.
//
// The events, their numbers and the response object are a function of the log alone. A log entry is
// one item of the stream, and a reader that gets several merged entries splits them again. So all
// readers, on all instances, get the same events with the same numbers.
package archive

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/responses"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Response is a stored response, up to the point to which its log has been played. One goroutine
// uses it.
type Response struct {
	*responses.Encoder
	Memo *responses.Memo
	// Over reports that the closing event has been played.
	Over bool

	decoder follow.Decoder
	endedAt time.Time
	cursor  int64 // the number of the last event that the reader has; -1 for none
}

// New returns the response of the stream of h, before any of its log has been played. Play leaves
// out the events with a number below from.
func New(h replay.Head, from int64) (*Response, error) {
	memo, err := responses.ParseMemo(h.Memo)
	if err != nil {
		return nil, err
	}
	r := &Response{Memo: memo, cursor: from - 1}
	r.Encoder = memo.Encoder(h.ID, h.Began, from, func() time.Time { return r.endedAt })
	return r, nil
}

// Load returns the response with the current state of its log. It fails if a part of the log cannot
// be read now.
func Load(ctx context.Context, in replay.Reader) (*Response, error) {
	r, err := New(in.Head(), math.MaxInt64) // no takeover overtakes this cursor
	for after := uint64(0); err == nil; {
		var p replay.Page
		if p, err = in.Read(ctx, after); err == nil {
			err = p.Missed
		}
		if err != nil {
			break
		}
		for _, e := range p.Events {
			if err = r.Play(e, nil); err != nil {
				return nil, err
			}
			after = e.Seq
		}
		if p.Ended || len(p.Events) == 0 {
			return r, nil
		}
	}
	return nil, err
}

// LostEvent returns the error for a reader whose cursor names an event that was lost with its
// instance.
func LostEvent(cursor int64) *streamerr.Error {
	return streamerr.InvalidParam("starting_after", "the event %d was lost with the instance that sent it; read the response from its beginning", cursor)
}

// Play encodes the events for the next event of the log. It fails if the reader's cursor names an
// event that the log has lost: the reader already has text that the next generation repeats.
func (r *Response) Play(e replay.Event, lines call.Lines) error {
	for r.Generation() < e.Generation() {
		r.TakeOver()
		if r.cursor < r.Next() && r.Lost(r.cursor) {
			return LostEvent(r.cursor)
		}
	}
	r.Over = r.Over || e.Kind.Closing()
	return r.decoder.Decode(e, follow.Visitor{
		Item:   func(out *chatv1.GenerateResponse) { r.Write(out, lines) },
		Ended:  func(at time.Time) { r.endedAt = at },
		Failed: func(err *streamerr.Error) { r.Fail(err, lines) },
	})
}

// Conversation returns the items of the conversation up to the response, with its output.
func (r *Response) Conversation() ([]json.RawMessage, error) {
	var output []json.RawMessage
	if err := json.Unmarshal(r.AppendItems(nil), &output); err != nil {
		return nil, err
	}
	return append(r.Memo.Input[:len(r.Memo.Input):len(r.Memo.Input)], output...), nil
}

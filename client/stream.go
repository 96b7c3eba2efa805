package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// A Kind is the type of an Event.
type Kind string

// The kinds of events.
const (
	Delta Kind = "delta"  // Text, Reasoning or Calls
	Used  Kind = "usage"  // Usage
	Ended Kind = "ending" // Ending; it completed
)

// An Event is a part of a stream. Deltas that a slow reader has not yet read are merged into one
// event.
type Event struct {
	Kind Kind
	ID   string // the cursor after this event
	Text string // of the first choice, if there are several
	// Reasoning is the model's reasoning before the answer. Like Calls, it is that of the first
	// choice.
	Reasoning string
	Calls     []CallPiece
	Choices   []Piece
	Usage     *Usage
	Ending    *Ending
}

// A Piece is the new part of one choice, for streams with several choices or with logprobs.
type Piece struct {
	Index     int            `json:"index"`
	Text      string         `json:"text"`
	Reasoning string         `json:"reasoning"`
	Calls     []CallPiece    `json:"calls"`
	Logprobs  []TokenLogprob `json:"logprobs"` // of its tokens, if the request asks for them
	// Why the choice is complete, in its last piece; "" for the only choice of a stream.
	Finish string `json:"finish"`
}

// A TokenLogprob is a token and its log-probability.
type TokenLogprob struct {
	Token   string         `json:"token"`
	Logprob float64        `json:"logprob"`
	Bytes   []int          `json:"bytes"` // what it adds to the text; nil for nothing
	Top     []TokenLogprob `json:"top_logprobs"`
}

// Usage counts tokens.
type Usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

// An Ending is the reason why a stream is over.
type Ending struct {
	Reason Reason
	Path   Path // hops crossed, origin first
	// Why the model stopped: "stop", "length", "tool_calls" or "content_filter"; "" unless the
	// stream completed, or if each choice has its own.
	Finish string
	Usage  *Usage // nil if the reader has not received the usage event
	Err    *Error // nil if the stream completed
}

// A Stream is one reader of one stream. Only one goroutine may use it, except for ID, Token and
// Stop.
type Stream struct {
	client    *Client
	id, token string
	reading   atomic.Bool

	last   string
	usage  *Usage
	ending *Ending
}

// ID returns the stream's id.
func (s *Stream) ID() string { return s.id }

// Cursor returns the position of the reader, for Resume.
func (s *Stream) Cursor() Cursor { return Cursor{Last: s.last, Token: s.token} }

// Ending returns the stream's ending, or nil until the reader has received it.
func (s *Stream) Ending() *Ending { return s.ending }

// Stop ends the stream for all of its readers. Each reader, including this one, gets the ending
// USER_STOP when it reads on.
func (s *Stream) Stop(ctx context.Context) error { return s.client.stop(ctx, s.id) }

// Text reads to the end, and returns the text; with several choices, that of the first.
func (s *Stream) Text(ctx context.Context) (string, error) {
	var text strings.Builder // bounded by the service's limit for a stream
	for e, err := range s.Events(ctx) {
		if err != nil {
			return text.String(), err
		}
		text.WriteString(e.Text)
	}
	return text.String(), nil
}

// Events reads on from the reader's position. Any ending other than completed is an error, in the
// last pair. Breaking out of the loop, or ending ctx, leaves the stream but does not stop it,
// unless its policy does. The stream can be read on later.
func (s *Stream) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if !s.reading.CompareAndSwap(false, true) {
			yield(Event{}, invalid("", "the stream is being read; Resume makes another reader"))
			return
		}
		defer s.reading.Store(false)
		r := readLoop{Stream: s, patience: newPatience(s.client.options.Patience, s.client.options.OnRetry), yield: yield}
		if s.ending == nil && !r.run(ctx) {
			return
		}
		if s.ending.Err != nil {
			yield(Event{}, s.ending.Err)
		}
	}
}

// A readLoop is one loop over a stream.
type readLoop struct {
	*Stream
	patience *retryPolicy
	yield    func(Event, error) bool
	skip     bool // the reader has all events, and needs only the ending
}

// errStopped ends a read after a break out of the loop.
var errStopped = errors.New("the loop over the events has ended")

// run reads until there is an ending. It returns false if there is no ending and nothing more to
// yield.
func (r *readLoop) run(ctx context.Context) bool {
	for r.ending == nil {
		err := r.connection(ctx)
		switch {
		case err == nil:
			continue
		case errors.Is(err, errStopped):
			return false
		}
		if err = r.patience.wait(ctx, err); err == nil {
			continue
		}
		if ctx.Err() != nil {
			r.yield(Event{}, err)
			return false
		}
		r.fail(asError(err))
	}
	return true
}

// connection reads events from one connection. It returns nil only if there is an ending, or if the
// next connection should get one.
func (r *readLoop) connection(ctx context.Context) error {
	what := call{http.MethodGet, "/v1/streams/" + url.PathEscape(r.id) + "/events", http.Header{"Accept": {"text/event-stream, application/json"}}, nil}
	if r.token != "" {
		what.path += "?token=" + url.QueryEscape(r.token)
	}
	if r.last != "" && !r.skip {
		what.header.Set("Last-Event-ID", r.last)
	}
	x, err := r.client.send(ctx, what)
	if err != nil {
		return err
	}
	defer x.close()
	if x.resp.StatusCode == http.StatusNoContent && !r.skip {
		// The previous owner of the cursor has read the ending; read it again from the log.
		r.skip = true
		return nil
	}
	if kind, _, _ := mime.ParseMediaType(x.resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return foreign("the answer is not an event stream", nil)
	}
	opened := time.Now()
	in := newSSE(x.resp.Body)
	for r.ending == nil {
		f, err := in.next()
		if in.hinted {
			r.patience.retry = in.retry
		}
		if err != nil {
			if time.Since(opened) > longestRetry {
				r.patience.calm()
			}
			return unfinished(err)
		}
		if ctx.Err() != nil {
			return left(ctx) // although more data may have arrived
		}
		r.patience.calm()
		if err := r.take(f); err != nil {
			return err
		}
	}
	return nil
}

// unfinished converts an error in the middle of a stream.
func unfinished(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return &brokenExchange{&Error{Reason: PeerLost, Path: newPath(service), Message: "the connection ended before the stream", Cause: err}}
	case errors.Is(err, errLarge):
		return foreign(err.Error(), err)
	default:
		return err
	}
}

func (r *readLoop) fail(err *Error) {
	r.ending = &Ending{Reason: err.Reason, Path: err.Path, Usage: r.usage, Err: err}
}

// take yields the event of a frame, if the frame has one.
func (r *readLoop) take(f frame) error {
	e, err := r.parse(f)
	if err != nil || e.Kind == "" {
		return err
	}
	if r.skip {
		e.ID = r.last
	}
	r.last = e.ID
	if r.skip && e.Kind != Ended {
		return nil
	}
	if !r.yield(e, nil) {
		return errStopped
	}
	return nil
}

// parse reads the data of an event, and checks the fields that the reader needs. An error event, or
// an event of a later version, is not an Event.
func (r *readLoop) parse(f frame) (e Event, err error) {
	e.ID = f.id
	var bad error
	switch f.event {
	case string(Delta):
		var d struct {
			Text      *string
			Reasoning string
			Calls     []CallPiece
			Choices   []Piece
		}
		bad = json.Unmarshal(f.data, &d)
		switch {
		case bad != nil:
		case d.Text != nil:
			e.Kind, e.Text, e.Reasoning, e.Calls = Delta, *d.Text, d.Reasoning, d.Calls
			return e, nil
		case len(d.Choices) > 0:
			e.Kind, e.Choices = Delta, d.Choices
			for _, p := range d.Choices {
				if p.Index == 0 {
					e.Text, e.Reasoning, e.Calls = p.Text, p.Reasoning, p.Calls
				}
			}
			return e, nil
		}
	case string(Used):
		var u *Usage
		if bad = json.Unmarshal(f.data, &u); bad == nil && u != nil {
			r.usage = u
			e.Kind, e.Usage = Used, u
			return e, nil
		}
	case string(Ended):
		var d struct {
			Reason, Finish string
			Path           []string
		}
		if bad = json.Unmarshal(f.data, &d); bad == nil && Reason(d.Reason) == Completed {
			r.ending = &Ending{Reason: Completed, Path: newPath(d.Path...), Finish: d.Finish, Usage: r.usage}
			e.Kind, e.Ending = Ended, r.ending
			return e, nil
		}
	case "error":
		if failure, ok := parseError(f.data); ok {
			if failure.Reason == "" {
				failure.Reason = Internal
			}
			r.last = f.id
			r.fail(failure)
			return Event{}, nil
		}
	default:
		return Event{}, nil
	}
	return Event{}, foreign("an event "+f.event+" has other data", bad)
}

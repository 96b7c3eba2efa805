package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	maxEvent   = 1 << 20 // bytes of a line of an answer
	maxRefusal = 1 << 16 // bytes of a refusal that are read
)

// Endings of streams that the server did not explain.
const (
	reasonLeft        = "left"        // the client left, because the time was over
	reasonCut         = "cut"         // the connection ended before the stream
	reasonUnreachable = "unreachable" // there was no answer
	reasonSilent      = "silent"      // no data came within the timeout
	reasonMalformed   = "malformed"   // the answer is not a stream of OpenAI's API
)

var (
	errSilent    = errors.New("no data within the timeout")
	errMalformed = errors.New("the answer is not a stream of chat completion chunks")
)

// A benchCaller is a client of a server. All of its streams use the same HTTP client, with a
// connection for each stream at a time.
type benchCaller struct {
	url, key string
	silence  time.Duration
	http     *http.Client
	bodies   func() []byte
	record   *benchRecorder
}

// Close implements load.Client. The HTTP client closes the connections.
func (c *benchCaller) Close() {}

// Do implements load.Client: it requests a stream and reads it to its end.
func (c *benchCaller) Do(ctx context.Context, intended time.Time) bool {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	s := &benchStream{record: c.record, intended: intended, watch: time.AfterFunc(c.silence, func() { giveUp(errSilent) }), silence: c.silence}
	defer s.watch.Stop()
	err := c.exchange(ctx, s)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	s.finish(err)
	return err == nil
}

// exchange sends the request and reads the answer.
func (c *benchCaller) exchange(ctx context.Context, s *benchStream) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(c.bodies()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end, or left
	s.answered = true
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		if err != nil {
			return err
		}
		return refusalOf(resp.StatusCode, body)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:")); ok {
			if err := s.event(bytes.TrimSpace(data), time.Now()); err != nil {
				return err
			}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return errMalformed
	case err != nil:
		return err
	case !s.done:
		return io.ErrUnexpectedEOF
	}
	return nil
}

// A benchFailure is an ending that the server explained.
type benchFailure struct{ reason, message string }

func (f *benchFailure) Error() string { return f.message }

// refusalOf returns the failure of an answer with another status than 200.
func refusalOf(status int, body []byte) error {
	f := failureIn(body)
	if f == nil {
		f = &benchFailure{message: string(body)}
	}
	if f.reason == "" {
		f.reason = "http_" + strconv.Itoa(status)
	}
	return f
}

// failureIn reads an error object. Its reason is that of Whence, or else the code, or else "". It
// returns nil if there is no error object.
func failureIn(body []byte) *benchFailure {
	e, ok := streamerr.ParseJSON(body)
	if !ok {
		return nil
	}
	f := &benchFailure{message: e.Message, reason: e.Code}
	if e.Reason != streamerr.Unspecified {
		f.reason = e.Reason.String()
		if origin := e.Path.Origin(); origin != "" {
			f.reason += " by " + origin
		}
	}
	return f
}

// A benchStream is one request and its answer.
type benchStream struct {
	record   *benchRecorder
	intended time.Time
	silence  time.Duration
	watch    *time.Timer // gives the stream up

	answered bool      // a status has arrived
	last     time.Time // of the last event with a part of the answer
	events   int64     // of these
	tokens   int64     // as the usage says; 0 without usage
	chosen   string    // the finish_reason
	done     bool
}

// An answerChunk is the part of an event that bench reads.
type answerChunk struct {
	Choices []struct {
		Delta        map[string]json.RawMessage
		FinishReason string `json:"finish_reason"`
	}
	Usage *struct {
		Completion int64 `json:"completion_tokens"`
	}
	Error json.RawMessage
}

// event reads the data of an event.
func (s *benchStream) event(data []byte, at time.Time) error {
	s.watch.Reset(s.silence)
	if string(data) == "[DONE]" {
		s.done = true
		return nil
	}
	var c answerChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return errMalformed
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		f := failureIn(data)
		if f == nil {
			f = &benchFailure{message: string(data)}
		}
		if f.reason == "" {
			f.reason = "error"
		}
		return f
	}
	if c.Usage != nil {
		s.tokens = c.Usage.Completion
	}
	for _, choice := range c.Choices {
		if choice.FinishReason != "" {
			s.chosen = choice.FinishReason
		}
		if saysSomething(choice.Delta) {
			s.part(at)
			break
		}
	}
	return nil
}

// saysSomething reports whether a delta has a part of an answer: text, reasoning or a tool call.
// Servers name these fields differently.
func saysSomething(delta map[string]json.RawMessage) bool {
	for name, value := range delta {
		switch text := string(value); {
		case name == "role" || text == `""` || text == "null" || text == "[]":
		default:
			return true
		}
	}
	return false
}

// part records an event with a part of the answer.
func (s *benchStream) part(at time.Time) {
	if s.events++; s.events == 1 {
		s.record.first(at.Sub(s.intended))
	} else {
		s.record.gap(at.Sub(s.last))
	}
	s.last = at
}

// finish records the ending.
func (s *benchStream) finish(err error) {
	var explained *benchFailure
	switch {
	case err == nil:
		reason := "completed"
		if s.chosen != "" {
			reason += " (" + s.chosen + ")"
		}
		s.record.completed(reason, s.events, s.tokens)
	case errors.As(err, &explained):
		s.record.failed(explained.reason, explained.message)
	case errors.Is(err, errSilent):
		s.record.failed(reasonSilent, err.Error())
	case errors.Is(err, errMalformed):
		s.record.failed(reasonMalformed, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		s.record.left(s.events)
	case s.answered:
		s.record.failed(reasonCut, err.Error())
	default:
		s.record.failed(reasonUnreachable, err.Error())
	}
}

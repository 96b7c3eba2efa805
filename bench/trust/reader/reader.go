// Package reader reads streams as a strict client: it compares their text, times their events, and
// accepts exactly one ending.
package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Streams with the same prompt have the same text.
const (
	Model  = "whence-tiny"
	Prompt = "Tell me a long story about a fox in the harbor."
)

// An Ending is the reader's view of how a stream ended.
type Ending int

// The endings of a stream.
const (
	Running   Ending = iota
	Completed        // with a finish_reason and [DONE]
	Failed           // with one error
	Refused          // with a status
	Left             // the reader left
	Cut              // without any of these
)

// A Reader reads one stream and records the times of its events.
type Reader struct {
	ID     string
	Prompt string                                // instead of Prompt
	Want   string                                // the whole text; "" disables the comparison
	Flows  func()                                // called at the first text; may be nil
	OnText func(at time.Time, gap time.Duration) // called at each later text, with the time since the one before; may be nil

	Asked, Begun, Over time.Time // Begun is zero without a first token
	Gap                time.Duration
	Ending             Ending
	Err                *streamerr.Error // of Failed and Refused

	text   strings.Builder
	events int  // with text
	chosen bool // a finish_reason has arrived
	status int  // 0 without a response
	last   time.Time
}

// Text returns the text that has arrived.
func (r *Reader) Text() string { return r.text.String() }

// Events returns the number of events with text that have arrived.
func (r *Reader) Events() int { return r.events }

// Body returns the request for the stream.
func (r *Reader) Body(tokens int) []byte {
	prompt := r.Prompt
	if prompt == "" {
		prompt = Prompt
	}
	return fmt.Appendf(nil, `{"model":%q,"stream":true,"temperature":0,"seed":1,"ignore_eos":true,"max_tokens":%d,"messages":[{"role":"user","content":%q}]}`, Model, tokens, prompt)
}

// Request returns the request for the stream.
func (r *Reader) Request(ctx context.Context, addr string, tokens int) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/chat/completions", bytes.NewReader(r.Body(tokens)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.ID != "" {
		req.Header.Set("X-Request-Id", r.ID)
	}
	return req, nil
}

// Read requests a stream and reads it to its end.
func (r *Reader) Read(ctx context.Context, client *http.Client, addr string, tokens int) {
	r.Asked = time.Now()
	defer func() { r.Over = time.Now() }()
	r.Ending = Cut
	req, err := r.Request(ctx, addr, tokens)
	if err != nil {
		return
	}
	resp, err := client.Do(req)
	if err == nil {
		defer resp.Body.Close() //nolint:errcheck // read to its end, or left
		r.ID, r.status = resp.Header.Get("X-Request-Id"), resp.StatusCode
		err = r.answer(resp)
	}
	if r.Ending == Cut && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		r.Ending = Left
	}
}

func (r *Reader) answer(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		r.Ending, r.Err = Refused, errorOf(body)
		return err
	}
	return r.read(resp.Body)
}

// Scan reads the events of an answer that another process has received. The stream was left if it has no ending.
func (r *Reader) Scan(in io.Reader) {
	r.Ending = Cut
	if err := r.read(in); (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && r.Ending == Cut {
		r.Ending = Left
	}
}

// read reads server-sent events until their end.
func (r *Reader) read(in io.Reader) error {
	for events := lab.NewEvents(in); ; {
		e, err := events.Next()
		if errors.Is(err, lab.ErrFormat) {
			r.Ending = Cut // although there was an ending before
		}
		if err != nil {
			return err
		}
		if e.Comment != "" {
			continue
		}
		if err := r.event(e.Data, e.At); err != nil {
			return err
		}
	}
}

// event handles the data of one event. Data after an ending is an error, and so is [DONE] without a
// finish_reason.
func (r *Reader) event(data string, at time.Time) error {
	if r.Ending != Cut {
		was := r.Ending
		r.Ending = Cut
		return fmt.Errorf("after the ending %d: %s", was, data)
	}
	if data == lab.Done {
		if !r.chosen {
			return errors.New("[DONE] without a finish_reason")
		}
		r.Ending = Completed
		return nil
	}
	var e struct {
		Choices []struct {
			Delta        struct{ Content string }
			FinishReason string `json:"finish_reason"`
		}
		Error json.RawMessage
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		return err
	}
	if e.Error != nil {
		r.Ending, r.Err = Failed, errorOf([]byte(data))
		return nil
	}
	if len(e.Choices) == 0 {
		return nil
	}
	if text := e.Choices[0].Delta.Content; text != "" {
		if r.chosen {
			return fmt.Errorf("text after the finish_reason: %s", data)
		}
		r.token(text, at)
	}
	r.chosen = r.chosen || e.Choices[0].FinishReason != ""
	return nil
}

// token handles the text of a delta.
func (r *Reader) token(text string, at time.Time) {
	r.text.WriteString(text)
	r.events++
	if r.Begun.IsZero() {
		r.Begun = at
		if r.Flows != nil {
			r.Flows()
		}
	} else {
		gap := at.Sub(r.last)
		r.Gap = max(r.Gap, gap)
		if r.OnText != nil {
			r.OnText(at, gap)
		}
	}
	r.last = at
}

// Elsewhere reports whether the request has not begun a stream, and may be sent to another service.
func (r *Reader) Elsewhere() bool {
	return r.Ending == Cut && r.status == 0 || r.Ending == Refused && r.Err.Reason == streamerr.Draining
}

// Wrong reports whether the text is not a prefix of the wanted text, or, for a completed stream,
// not the whole text.
func (r *Reader) Wrong() bool {
	if r.Want == "" {
		return false
	}
	got := r.text.String()
	return !strings.HasPrefix(r.Want, got) || r.Ending == Completed && got != r.Want
}

// errorOf parses the body of a refusal, or the data of the last event of a stream that failed.
func errorOf(body []byte) *streamerr.Error {
	if e, ok := streamerr.ParseJSON(body); ok {
		return e
	}
	return streamerr.New(streamerr.Internal, "the body is not an error: %.200q", body)
}

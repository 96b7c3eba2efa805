package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// The requests of all streams are equal, so each has the same text.
const (
	model  = "whence-tiny"
	prompt = "Tell me a long story about a fox in the harbor."
	pace   = 20 // tokens a second
)

// bodyOf returns the request for a stream.
func bodyOf(tokens int) []byte {
	return fmt.Appendf(nil, `{"model":%q,"stream":true,"temperature":0,"seed":1,"ignore_eos":true,"max_tokens":%d,"messages":[{"role":"user","content":%q}]}`, model, tokens, prompt)
}

// An ending is the reader's view of how a stream ended.
type ending int

const (
	running   ending = iota
	completed        // with a finish_reason and [DONE]
	failed           // with one error
	refused          // with a status
	left             // the reader left
	cut              // without any of these
)

// A reader reads one stream and records the times of its events.
type reader struct {
	id     string
	want   string // the whole text; "" disables the comparison
	flows  func() // called at the first text; may be nil
	text   strings.Builder
	events int
	chosen bool // a finish_reason has arrived

	asked, begun, last, over time.Time // begun is zero without a first token
	gap                      time.Duration
	ending                   ending
	err                      *streamerr.Error // of failed and refused
}

// read requests a stream and reads it to its end.
func (r *reader) read(ctx context.Context, client *http.Client, addr string, tokens int) {
	r.asked = time.Now()
	defer func() { r.over = time.Now() }()
	r.ending = cut
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/chat/completions", bytes.NewReader(bodyOf(tokens)))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	if r.id != "" {
		req.Header.Set("X-Request-Id", r.id)
	}
	resp, err := client.Do(req)
	if err == nil {
		defer resp.Body.Close() //nolint:errcheck // read to its end, or left
		r.id = resp.Header.Get("X-Request-Id")
		err = r.answer(resp)
	}
	if r.ending == cut && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		r.ending = left
	}
}

func (r *reader) answer(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		r.ending, r.err = refused, errorOf(body)
		return err
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		data, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: ")
		if !ok {
			continue
		}
		if err := r.event(data, time.Now()); err != nil {
			return err
		}
	}
}

// event handles the data of one event. Data after an ending is an error, and so is [DONE] without a
// finish_reason.
func (r *reader) event(data string, at time.Time) error {
	if r.ending != cut {
		was := r.ending
		r.ending = cut
		return fmt.Errorf("after the ending %d: %s", was, data)
	}
	if data == "[DONE]" {
		if !r.chosen {
			return errors.New("[DONE] without a finish_reason")
		}
		r.ending = completed
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
		r.ending, r.err = failed, errorOf([]byte(data))
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
func (r *reader) token(text string, at time.Time) {
	r.text.WriteString(text)
	r.events++
	if r.begun.IsZero() {
		r.begun = at
		if r.flows != nil {
			r.flows()
		}
	} else {
		r.gap = max(r.gap, at.Sub(r.last))
	}
	r.last = at
}

// wrong reports whether the text is not a prefix of the wanted text, or, for a completed stream,
// not the whole text.
func (r *reader) wrong() bool {
	if r.want == "" {
		return false
	}
	got := r.text.String()
	return !strings.HasPrefix(r.want, got) || r.ending == completed && got != r.want
}

// errorOf parses the body of a refusal, or the data of the last event of a stream that failed.
func errorOf(body []byte) *streamerr.Error {
	if e, ok := streamerr.ParseJSON(body); ok {
		return e
	}
	return streamerr.New(streamerr.Internal, "the body is not an error: %.200q", body)
}

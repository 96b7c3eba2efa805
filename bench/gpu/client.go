package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/whence-dev/whence/lab"
)

// An ask is a request for a stream of text.
type ask struct {
	prompt string
	tokens int
	more   map[string]any                // further fields
	each   func(r *result) (goesOn bool) // called for each event with tokens; nil reads to the end
	id     string                        // "" lets api-service make one
}

// A result is a client's view of a stream.
type result struct {
	id       string
	status   int
	ids      []uint32
	ttft     time.Duration
	gap      time.Duration // the longest pause between two events
	finish   string
	reason   string // of the error that ended it
	done     bool
	cached   int // tokens of the prompt
	prompt   int
	left     bool // the client has closed its connection
	lastRead time.Time
}

// Bounds of requests, so that a server that hangs fails its row.
const (
	streamWithin = 15 * time.Minute
	getWithin    = 20 * time.Second
)

// stream reads a stream of text completions to its end, or until each has it end. The result is not
// nil, even if there is an error.
func (s *stand) stream(ctx context.Context, a ask) (*result, error) {
	ctx, leave := context.WithTimeout(ctx, streamWithin)
	defer leave()
	r := &result{lastRead: time.Now()}
	req, err := s.request(ctx, a)
	if err != nil {
		return r, err
	}
	begun := time.Now()
	resp, err := s.http.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close() //nolint:errcheck // it may be cut
	r.id, r.status, r.lastRead = resp.Header.Get("X-Request-Id"), resp.StatusCode, begun
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err == nil {
			err = r.take(text)
		}
		return r, err
	}
	for events := lab.NewEvents(resp.Body); ; {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF), r.reason != "" && errors.Is(err, io.ErrUnexpectedEOF): // a failed stream has no regular end
			return r, nil
		case err != nil:
			return r, err
		case e.Comment != "":
			continue
		case e.Data == lab.Done:
			r.done = true
			continue
		}
		before := len(r.ids)
		if err := r.take([]byte(e.Data)); err != nil {
			return r, err
		}
		if len(r.ids) == before {
			continue
		}
		if before == 0 {
			r.ttft = e.At.Sub(begun)
		} else {
			r.gap = max(r.gap, e.At.Sub(r.lastRead))
		}
		r.lastRead = e.At
		if a.each != nil && !a.each(r) {
			r.left = true
			return r, nil
		}
	}
}

// request returns the request of a stream of text completions.
func (s *stand) request(ctx context.Context, a ask) (*http.Request, error) {
	body := map[string]any{
		"model": s.modelName(ctx), "prompt": a.prompt, "max_tokens": a.tokens, "temperature": 0, "ignore_eos": true, "stream": true,
		"stream_options": map[string]any{"include_usage": true}, "return_token_ids": true,
	}
	for name, value := range a.more {
		body[name] = value
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Edges[0].Addr+"/v1/completions", bytes.NewReader(encoded))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if a.id != "" {
		req.Header.Set("X-Request-Id", a.id)
	}
	return req, nil
}

// take reads an event, or the body of a refusal.
func (r *result) take(data []byte) error {
	var c struct {
		Choices []struct {
			TokenIDs []uint32 `json:"token_ids"`
			Finish   string   `json:"finish_reason"`
		}
		Usage *struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		Error *struct {
			Message string
			Whence  struct{ Reason string }
		}
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("event %.200q: %w", data, err)
	}
	for _, choice := range c.Choices {
		r.ids = append(r.ids, choice.TokenIDs...)
		if choice.Finish != "" {
			r.finish = choice.Finish
		}
	}
	if c.Usage != nil {
		r.prompt, r.cached = c.Usage.Prompt, c.Usage.Details.Cached
	}
	if c.Error != nil {
		r.reason = c.Error.Whence.Reason
	}
	return nil
}

// get reads a JSON object of api-service.
func (s *stand) get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, getWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Edges[0].Addr+path, nil)
	if err != nil {
		return err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: status %d", path, resp.StatusCode)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// models is the answer of GET /v1/models.
type models struct {
	Data []struct {
		ID      string
		Context int `json:"context_length"`
	}
}

func (s *stand) modelName(ctx context.Context) string {
	var m models
	if s.get(ctx, "/v1/models", &m) != nil || len(m.Data) == 0 {
		return ""
	}
	return m.Data[0].ID
}

func (s *stand) context(ctx context.Context) int {
	var m models
	if s.get(ctx, "/v1/models", &m) != nil || len(m.Data) == 0 {
		return 0
	}
	return m.Data[0].Context
}

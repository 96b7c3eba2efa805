package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A story is what the hops have recorded of a stream, as GET /v1/streams/{id} tells it.
type story struct {
	State  string
	Reason string
	Tokens struct{ Generated int }
	Hops   []hopStory
}

// A hopStory is the record of one hop.
type hopStory struct {
	Hop, State, Reason string
	Path               []string
	Began              time.Time
	Took               float64 `json:"took_ms"`
	Generated          int     `json:"tokens_out"`
}

// over returns when the stream had ended on the hop.
func (h *hopStory) over() time.Time {
	return h.Began.Add(time.Duration(h.Took * float64(time.Millisecond)))
}

// story returns the story of a stream.
func (t *trial) story(ctx context.Context, id string) (s story, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.Edges[0].Addr+"/v1/streams/"+id, nil)
	if err != nil {
		return s, err
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("the story of %s: %s", id, resp.Status)
	}
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// engine returns the record of the hop with the engine. A stream that has not reached a worker has
// none.
func (s *story) engine() (*hopStory, bool) {
	for i := range s.Hops {
		if strings.HasPrefix(s.Hops[i].Hop, "llm-worker/") {
			return &s.Hops[i], true
		}
	}
	return nil, false
}

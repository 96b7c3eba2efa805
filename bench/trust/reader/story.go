package reader

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A Story is what the hops have recorded of a stream, as GET /v1/streams/{id} tells it.
type Story struct {
	State  string
	Reason string
	Hops   []HopStory
}

// A HopStory is the record of one hop.
type HopStory struct {
	Hop, State, Reason string
	Path               []string
	Began              time.Time
	Took               float64  `json:"took_ms"`
	Received           int      `json:"tokens_in"`
	Generated          int      `json:"tokens_out"`
	StopConfirmedMS    *float64 `json:"stop_confirmed_ms"`
	Moves              []struct{ From, To, Reason string }
}

// Over returns when the stream had ended on the hop.
func (h *HopStory) Over() time.Time {
	return h.Began.Add(time.Duration(h.Took * float64(time.Millisecond)))
}

// Tell returns the story of a stream.
func Tell(ctx context.Context, client *http.Client, addr, id string) (s Story, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v1/streams/"+id, nil)
	if err != nil {
		return s, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("the story of %s: %s", id, resp.Status)
	}
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// Engine returns the record of the hop with the engine. A stream that has not reached a worker has
// none.
func (s *Story) Engine() (*HopStory, bool) {
	for i := range s.Hops {
		if strings.HasPrefix(s.Hops[i].Hop, "llm-worker/") {
			return &s.Hops[i], true
		}
	}
	return nil, false
}

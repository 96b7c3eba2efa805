package follow

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/replay"
)

// appendData appends the data of an event in the form for readers: one line of JSON. An event with
// one delta, or with text of any length, is copied from the log. Other deltas that the log has
// merged are decoded and joined.
func appendData(b []byte, e replay.Event) []byte {
	switch {
	case e.Kind != replay.Delta:
		return append(b, e.Data...)
	case strings.HasPrefix(e.Data, mark):
		return appendPieces(b, e.Data)
	default:
		return appendParts(b, e.Data)
	}
}

// A Receipt is the body of the answer to the client that created a stream.
type Receipt struct {
	ID        string    `json:"id"`
	Events    string    `json:"events"`
	ExpiresAt time.Time `json:"expires_at"`
	Token     string    `json:"read_token"`
	Resumable bool      `json:"resumable"`
}

// JSON returns the body.
func (m Receipt) JSON() []byte {
	m.ExpiresAt = m.ExpiresAt.UTC().Truncate(time.Second)
	return marshal(m)
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: structs of strings
	}
	return b
}

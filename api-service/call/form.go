package call

import "github.com/whence-dev/whence/pkg/streamerr"

// A Form is what all routes of one HTTP API have in common besides their bodies: how a refusal, a
// failed stream and a silent stream look to its clients.
type Form struct {
	// Done names the last event of a completed stream, for the stream's record.
	Done string
	// IDHeader is the API's own response header for the stream's id, besides X-Request-Id; "" means
	// none.
	IDHeader string
	// Refusal returns the HTTP status and the JSON body for an error, which has a status of its own
	// and the id of its stream.
	Refusal func(status int, err *streamerr.Error, id string) (int, []byte)
	// Failure writes the last event of a stream that failed.
	Failure func(err *streamerr.Error, id string, lines Lines)
	// Ping writes an event without a meaning into a silent stream; nil means a comment.
	Ping func(lines Lines)
}

// LastEvent returns the name of the last event of a call's stream that completed.
func (f *Form) LastEvent(c *Call) string {
	if c.Done != nil {
		return c.Done()
	}
	return f.Done
}

// Fail writes the last event of a call's stream that failed.
func (f *Form) Fail(c *Call, err *streamerr.Error, id string, lines Lines) {
	encode := f.Failure
	if c.Failure != nil {
		encode = c.Failure
	}
	encode(err, id, lines)
}

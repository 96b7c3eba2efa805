package call

import "github.com/whence-dev/whence/pkg/streamerr"

// A Form is the common part of all routes of one HTTP API, besides their bodies: the form of a
// refusal, of a failed stream and of a silent stream.
type Form struct {
	// Done names the last event of a completed stream, for the stream's record.
	Done string
	// IDHeader is the API's own response header for the stream's id, besides X-Request-Id; "" means
	// none.
	IDHeader string
	// Lines reports that streams are lines of JSON (NDJSON) instead of events. They have no comments.
	Lines bool
	// AnyType reports that bodies are read as JSON whatever their Content-Type, if no browser sends
	// them.
	AnyType bool
	// Refusal returns the HTTP status and the JSON body for an error, given the status of the error
	// and the id of the stream.
	Refusal func(status int, err *streamerr.Error, id string) (int, []byte)
	// Failure writes the last event of a stream that failed.
	Failure func(err *streamerr.Error, id string, lines Lines)
	// Ping writes an event without content into a silent stream; nil means a comment.
	Ping func(lines Lines)
}

// LastEvent returns the name of the last event of a completed stream of a call.
func (f *Form) LastEvent(c *Call) string {
	if c.Done != nil {
		return c.Done()
	}
	return f.Done
}

// Fail writes the last event of a failed stream of a call.
func (f *Form) Fail(c *Call, err *streamerr.Error, id string, lines Lines) {
	encode := f.Failure
	if c.Failure != nil {
		encode = c.Failure
	}
	encode(err, id, lines)
}

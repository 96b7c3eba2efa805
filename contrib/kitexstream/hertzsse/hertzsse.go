// Package hertzsse measures and traces the SSE streams of any Hertz server or client. A middleware
// for routes whose handlers use sse.NewWriter, and a Client that opens an sse.Reader, record each
// event, header and ending in a monitor.Monitor.
//
//	h.GET("/prices", hertzsse.Server(monitor), prices) // prices does not change
//
// The middleware changes no response, and counts only responses of the type text/event-stream, and
// refusals: ordinary responses with a status of 400 and above. A server notices that its client is
// gone when a write fails. With server.WithSenseClientDisconnection(true) it notices at once, and
// the handler's context ends. A handler reports a failure with c.Error of Hertz. Handlers and
// readers pass their context to calls of Kitex clients with kitexstream.Client, which joins paths
// and traces.
package hertzsse

import (
	"net/http"

	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// fromStatus returns the ending of a stream that an HTTP status refused, or nil if the status is
// not a refusal.
func fromStatus(status int) *streamerr.Error {
	if status < http.StatusBadRequest {
		return nil
	}
	e := streamerr.New(streamerr.Internal, "HTTP status %d", status)
	switch status {
	case http.StatusUnauthorized:
		e.Reason = streamerr.Unauthenticated
	case http.StatusForbidden:
		e.Reason = streamerr.Forbidden
	case http.StatusNotFound:
		e.Reason = streamerr.NotFound
	case http.StatusTooManyRequests:
		e.Reason = streamerr.Overloaded
	case http.StatusServiceUnavailable:
		e.Reason = streamerr.Unavailable
	case http.StatusGatewayTimeout:
		e.Reason = streamerr.Deadline
	default:
		if status < http.StatusInternalServerError {
			e.Reason = streamerr.Invalid
		}
	}
	return e
}

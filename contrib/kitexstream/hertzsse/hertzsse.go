// Package hertzsse makes the SSE streams of any Hertz server or client visible: a middleware for routes whose handlers use
// sse.NewWriter, and a Client that opens an sse.Reader, tell a telemetry.Monitor each event, header and ending.
//
//	h.GET("/prices", hertzsse.Server(monitor), prices) // prices is as it was
//
// A server notices that its client has gone when a write fails; with server.WithSenseClientDisconnection(true) it notices at once,
// and the handler's context ends. A handler reports a failure with c.Error, as Hertz has it. Handlers and readers pass their
// context to calls of Kitex clients with kitexstream.Client, which makes paths and traces join.
package hertzsse

import (
	"net/http"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// fromStatus returns what an HTTP status means that refused a stream, or nil if it refused none.
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

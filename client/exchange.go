package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// service is the hop that a broken connection is attributed to.
const service = "api-service"

// maxBody bounds the bytes read of a body that is not a stream.
const maxBody = 1 << 20

var errSilent = errors.New("the service sent nothing in time")

// An exchange is one request and its response. It ends if the service is silent for too long.
type exchange struct {
	ctx     context.Context //nolint:containedctx // the caller's, for the life of the exchange
	end     context.CancelCauseFunc
	silence time.Duration
	timer   *time.Timer
	resp    *http.Response
}

// send sends a call, and returns its exchange if the status is 2xx. The caller closes the exchange.
func (c *Client) send(ctx context.Context, what call) (*exchange, error) {
	if ctx.Err() != nil {
		return nil, left(ctx)
	}
	within, end := context.WithCancelCause(ctx)
	x := &exchange{ctx: ctx, end: end, silence: c.options.Silence}
	x.timer = time.AfterFunc(x.silence, func() { end(errSilent) })
	req, err := c.request(within, what)
	if err != nil {
		x.close()
		return nil, err
	}
	x.resp, err = c.options.HTTP.Do(req) //nolint:bodyclose // close closes it
	x.timer.Stop()
	if err != nil {
		err = x.broke(within, err)
		x.close()
		return nil, err
	}
	if x.resp.StatusCode/100 != 2 {
		err := x.refusal()
		x.close()
		return nil, err
	}
	x.resp.Body = &timedBody{x.resp.Body, x, within}
	return x, nil
}

func (x *exchange) close() {
	x.timer.Stop()
	if x.resp != nil {
		_ = x.resp.Body.Close() // the body has been read, or is not needed
	}
	x.end(context.Canceled)
}

// broke converts a connection error.
func (x *exchange) broke(within context.Context, err error) error {
	if x.ctx.Err() != nil {
		return left(x.ctx)
	}
	lost := &Error{Reason: PeerLost, Path: newPath(service), Cause: err,
		Message: "the connection to " + service + " broke, or could not be made"}
	if errors.Is(context.Cause(within), errSilent) {
		lost.Message = service + " sent nothing for " + x.silence.String()
	}
	return &brokenExchange{lost}
}

// A timedBody is the body of a response. It ends the exchange when a Read waits too long for the
// service.
type timedBody struct {
	io.ReadCloser
	x      *exchange
	within context.Context //nolint:containedctx // the exchange's
}

func (h *timedBody) Read(b []byte) (int, error) {
	h.x.timer.Reset(h.x.silence)
	n, err := h.ReadCloser.Read(b)
	h.x.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = h.x.broke(h.within, err)
	}
	return n, err
}

// whole returns the complete body.
func (x *exchange) whole() ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(x.resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxBody:
		return nil, foreign("the body of the answer has more than "+strconv.Itoa(maxBody)+" bytes", nil)
	}
	return b, nil
}

// refusal reads the error of a response other than 2xx.
func (x *exchange) refusal() error {
	x.timer.Reset(x.silence)
	b, _ := io.ReadAll(io.LimitReader(x.resp.Body, maxBody)) // truncated, or a proxy's: the status has been read
	x.timer.Stop()
	if x.ctx.Err() != nil {
		return left(x.ctx)
	}
	status := x.resp.StatusCode
	e, ok := parseError(b)
	if !ok {
		e = &Error{Message: fmt.Sprintf("the answer is an HTTP status %d that is not Whence's", status)}
	}
	if e.Reason == "" {
		e.Reason = ofStatus(status)
	}
	if seconds, err := strconv.Atoi(x.resp.Header.Get("Retry-After")); err == nil && seconds >= 0 {
		e.RetryAfter = time.Duration(min(seconds, 1<<30)) * time.Second
	}
	if status == http.StatusGone { // the stream has ended with e
		return e
	}
	switch e.Reason {
	case Overloaded, Draining, Unavailable, PeerLost, PeerReset:
		// These may be temporary.
		return &brokenExchange{e}
	default:
		return e
	}
}

// ofStatus returns the reason for a status whose body is not Whence's, because a proxy has
// answered.
func ofStatus(status int) Reason {
	switch {
	case status == http.StatusUnauthorized:
		return Unauthenticated
	case status == http.StatusForbidden:
		return Forbidden
	case status == http.StatusNotFound, status == http.StatusGone:
		return NotFound
	case status == http.StatusRequestTimeout:
		return Deadline
	case status == http.StatusTooManyRequests:
		return Overloaded
	case status == http.StatusServiceUnavailable:
		return Unavailable
	case status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return PeerLost
	case status >= 400 && status < 500:
		return Invalid
	default:
		return Internal
	}
}

// foreign returns the error for a response that is not Whence's. Another attempt would get the same
// response.
func foreign(message string, cause error) *Error {
	return &Error{Reason: Internal, Path: newPath(service), Message: message, Cause: cause}
}

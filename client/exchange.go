package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// service is the hop whose connection breaks.
const service = "api-service"

// maxBody bounds what is read of a body that is no stream, in bytes.
const maxBody = 1 << 20

var errSilent = errors.New("nothing was heard in time")

// An exchange is one request and its response, which ends if it is silent for too long.
type exchange struct {
	ctx     context.Context //nolint:containedctx // the caller's, for the life of the exchange
	end     context.CancelCauseFunc
	silence time.Duration
	timer   *time.Timer
	resp    *http.Response
}

// send sends a call, and returns its exchange if the status is one of 2xx. The caller closes it.
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
		_ = x.resp.Body.Close() // it is read, or not wanted
	}
	x.end(context.Canceled)
}

// broke is what an error of the connection means.
func (x *exchange) broke(within context.Context, err error) error {
	if x.ctx.Err() != nil {
		return left(x.ctx)
	}
	lost := &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(service), Cause: err,
		Message: "the connection to " + service + " broke, or could not be made"}
	if errors.Is(context.Cause(within), errSilent) {
		lost.Message = "nothing was heard from " + service + " for " + x.silence.String()
	}
	return &brokenExchange{lost}
}

// A timedBody is the body of an answer. It ends the exchange when a Read waits too long for the service.
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

// whole returns the body.
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

// refusal reads why the service does not do what it is asked for.
func (x *exchange) refusal() error {
	x.timer.Reset(x.silence)
	b, _ := io.ReadAll(io.LimitReader(x.resp.Body, maxBody)) // cut, or a proxy's: the status has been read
	x.timer.Stop()
	if x.ctx.Err() != nil {
		return left(x.ctx)
	}
	status := x.resp.StatusCode
	e, ok := streamerr.ParseJSON(b)
	if !ok {
		e = streamerr.New(streamerr.Unspecified, "the answer is an HTTP status %d that is not Whence's", status)
	}
	if e.Reason == streamerr.Unspecified {
		e.Reason = ofStatus(status)
	}
	if seconds, err := strconv.Atoi(x.resp.Header.Get("Retry-After")); err == nil && seconds >= 0 {
		e.RetryAfter = time.Duration(min(seconds, 1<<30)) * time.Second
	}
	if status == http.StatusGone { // the stream has ended with e
		return e
	}
	switch e.Reason {
	case streamerr.Overloaded, streamerr.Draining, streamerr.Unavailable, streamerr.PeerLost, streamerr.PeerReset: // may pass
		return &brokenExchange{e}
	default:
		return e
	}
}

// ofStatus is the reason for a status where nobody who speaks for Whence said more: a proxy has answered.
func ofStatus(status int) streamerr.Reason {
	switch {
	case status == http.StatusUnauthorized:
		return streamerr.Unauthenticated
	case status == http.StatusForbidden:
		return streamerr.Forbidden
	case status == http.StatusNotFound, status == http.StatusGone:
		return streamerr.NotFound
	case status == http.StatusRequestTimeout:
		return streamerr.Deadline
	case status == http.StatusTooManyRequests:
		return streamerr.Overloaded
	case status == http.StatusServiceUnavailable:
		return streamerr.Unavailable
	case status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return streamerr.PeerLost
	case status >= 400 && status < 500:
		return streamerr.Invalid
	default:
		return streamerr.Internal
	}
}

// foreign is the error for bytes that are not Whence's: another attempt would bring no others.
func foreign(message string, cause error) *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Internal, Path: streamerr.NewPath(service), Message: message, Cause: cause}
}

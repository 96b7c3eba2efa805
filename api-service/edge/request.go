package edge

import (
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// requestIDHeader carries the stream's id, both ways.
const requestIDHeader = "X-Request-Id"

// requestID returns the id that the client gave, if it can be a stream's, else a new one, and says it in the response.
func requestID(c *app.RequestContext) string {
	id := string(c.GetHeader(requestIDHeader))
	if !stream.ValidID(id) {
		id = stream.NewID()
	}
	c.Header(requestIDHeader, id)
	return id
}

// peer is the client's address, for people.
func (e *Edge) peer(c *app.RequestContext) string {
	if e.config.TrustForwarded {
		all := string(c.GetHeader("X-Forwarded-For"))
		if last := strings.TrimSpace(all[strings.LastIndexByte(all, ',')+1:]); last != "" {
			return last
		}
	}
	return c.RemoteAddr().String()
}

// timeoutHeader says, in seconds, how long the answer may take; it wins over the body's timeout.
const timeoutHeader = "X-Request-Timeout"

// timeout returns the request's deadline; 0 is none.
func timeout(c *app.RequestContext, inBody time.Duration) (time.Duration, error) {
	header := string(c.GetHeader(timeoutHeader))
	if header == "" {
		return inBody, nil
	}
	seconds, err := strconv.ParseFloat(header, 64)
	if err != nil || !(seconds > 0 && seconds <= openai.MaxTimeout.Seconds()) {
		return 0, streamerr.InvalidParam(timeoutHeader, "%s is %.32q; it must be seconds, over 0 and at most %v", timeoutHeader, header, openai.MaxTimeout.Seconds())
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// A refusal is an error with an HTTP status that its Reason alone does not say.
type refusal struct {
	cause  *streamerr.Error
	status int
}

func (r *refusal) Error() string { return r.cause.Error() }
func (r *refusal) Unwrap() error { return r.cause }

// readBody returns the body of a JSON request.
func (e *Edge) readBody(c *app.RequestContext) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(string(c.ContentType())); err != nil || kind != "application/json" {
		// A browser sends any other type to any site without asking, so this also keeps strangers' pages out.
		return nil, &refusal{streamerr.InvalidParam("Content-Type", "Content-Type must be application/json"), http.StatusUnsupportedMediaType}
	}
	if enc := string(c.GetHeader("Content-Encoding")); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, &refusal{streamerr.InvalidParam("Content-Encoding", "Content-Encoding %.32q is not supported; send the body as it is", enc), http.StatusUnsupportedMediaType}
	}
	limit := e.config.MaxBody
	if int64(c.Request.Header.ContentLength()) <= limit {
		body, err := io.ReadAll(io.LimitReader(c.RequestBodyStream(), limit+1))
		if err != nil {
			c.SetConnectionClose()
			return nil, streamerr.New(streamerr.Invalid, "the body could not be read: %v", err)
		}
		if int64(len(body)) <= limit {
			return body, nil
		}
	}
	c.SetConnectionClose() // what is left of the body is not worth reading
	return nil, &refusal{streamerr.New(streamerr.Invalid, "the body has more than %d bytes", limit), http.StatusRequestEntityTooLarge}
}

// refuse answers a request that did not become a stream.
func (e *Edge) refuse(c *app.RequestContext, status int, err error) {
	out := streamerr.Via(e.hop.Name, err)
	e.hop.Metrics.Refused(out.Reason)
	e.log.Info("request refused", "stream", string(c.Response.Header.Peek(requestIDHeader)), "hop", e.hop.Name,
		"status", status, "reason", out.Reason.String(), "param", out.Param, "message", out.Text())
	writeError(c, status, out)
}

// statusOf is the HTTP status of an error before the first byte.
func statusOf(err error) int {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status
	}
	return streamerr.As(err).Reason.HTTPStatus()
}

func writeError(c *app.RequestContext, status int, err *streamerr.Error) {
	if err.RetryAfter > 0 {
		c.Header("Retry-After", strconv.Itoa(int(math.Ceil(err.RetryAfter.Seconds()))))
	}
	c.Data(status, "application/json", err.JSON())
}

// gone is why a stream ends whose client has closed its connection.
func gone() *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath(client), Message: "the client closed its connection"}
}

// vanished makes gone of a message.
func vanished(leave func(*streamerr.Error)) func(message string) {
	return func(message string) {
		g := gone()
		g.Message = message
		leave(g)
	}
}

// unwritten is why a stream ends whose client cannot be written to.
func (e *Edge) unwritten(err error) *streamerr.Error {
	if errors.Is(err, errWriteTimeout) {
		return &streamerr.Error{Reason: streamerr.SlowReader, Message: fmt.Sprintf("the client did not read for %v", e.config.WriteTimeout), Cause: err}
	}
	g := gone()
	g.Cause = err
	return g
}

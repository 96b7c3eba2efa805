// Package exchange is the common part of the edge's handlers: it reads HTTP requests, and refuses
// invalid requests.
package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/connlimit"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/openai"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/panicvalue"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Client and Operator are the names in paths of the origins of requests.
const (
	Client   = clientconn.Client
	Operator = "operator"
)

// A Desk admits requests.
type Desk struct {
	Name           string            // name of this hop
	MaxBody        int64             // bytes
	Bodies         *Bodies           // bounds the memory of long bodies; nil for no bound
	Strict         bool              // fields of bodies that cannot be honoured are refused
	TrustForwarded bool              // X-Forwarded-For has the client's address
	Proxies        connlimit.Proxies // whose X-Forwarded-For has it
	Log            *slog.Logger
	Metrics        *metrics.Hop
}

// IDHeader carries the stream's id, in requests and in responses.
const IDHeader = "X-Request-Id"

// ID returns the client's id if it is a valid stream id, otherwise a new one, and sets it in the
// response.
func ID(c *app.RequestContext) string { return setID(c, string(c.GetHeader(IDHeader))) }

// StreamID is ID for a request that makes a stream. An id that another tenant could use, too, gets
// the tag of the caller's tenant.
func StreamID(ctx context.Context, c *app.RequestContext) string {
	return NameStream(ctx, c, string(c.GetHeader(IDHeader)))
}

// NameStream is StreamID for a name that stands in the body of the request.
func NameStream(ctx context.Context, c *app.RequestContext, name string) string {
	if stream.ValidID(name) {
		name = Caller(ctx).StreamID(name) // may be too long with the tag
	}
	return setID(c, name)
}

// Rename gives the stream of a request an id of its own, because another stream has the id that the
// client sent. It begins with that id.
func Rename(ctx context.Context, c *app.RequestContext, id string) string {
	return setID(c, Caller(ctx).Another(id))
}

// setID sets the stream's id in the response. An invalid id is replaced by a new one.
func setID(c *app.RequestContext, id string) string {
	if !stream.ValidID(id) {
		id = stream.NewID()
	}
	SetID(&c.Response.Header, Form(c), id)
	return id
}

// SetID sets the stream's id in the headers of a response of an API's form.
func SetID(h *protocol.ResponseHeader, form *call.Form, id string) {
	h.Set(IDHeader, id)
	if form.IDHeader != "" {
		h.Set(form.IDHeader, id)
	}
}

// Peer returns the client's address, for logs and lists. It ignores an X-Forwarded-For whose last
// entry is not an IP address.
func (d *Desk) Peer(c *app.RequestContext) string {
	if d.TrustForwarded || d.Proxies.Trusts(c.RemoteAddr()) {
		var lines []string
		for _, line := range c.Request.Header.PeekAll("X-Forwarded-For") {
			lines = append(lines, string(line))
		}
		if client := connlimit.Forwarded(lines); client != "" {
			return client
		}
	}
	return c.RemoteAddr().String()
}

// NeedsEnd reports whether a client needs the regular end of a body even after a failure: Codex, which
// names itself, reports a body without an end in the place of the failure that it has read.
func NeedsEnd(c *app.RequestContext) bool {
	return strings.HasPrefix(string(c.GetHeader("originator")), "codex")
}

// Browser reports whether a browser sent a request for a page: only browsers send these headers.
func Browser(c *app.RequestContext) bool {
	return len(c.GetHeader("Origin")) > 0 || len(c.GetHeader("Sec-Fetch-Mode")) > 0
}

// TimeoutHeader is the request header with the maximum duration of the answer, in seconds. It
// overrides the body's timeout.
const TimeoutHeader = "X-Request-Timeout"

// Timeout returns the request's timeout; 0 means none.
func Timeout(c *app.RequestContext, inBody time.Duration) (time.Duration, error) {
	header := string(c.GetHeader(TimeoutHeader))
	if header == "" {
		return inBody, nil
	}
	seconds, err := strconv.ParseFloat(header, 64)
	if err != nil || !(seconds > 0 && seconds <= openai.MaxTimeout.Seconds()) {
		return 0, streamerr.InvalidParam(TimeoutHeader, "%s is %.32q; it must be seconds, over 0 and at most %v", TimeoutHeader, header, openai.MaxTimeout.Seconds())
	}
	return max(time.Duration(seconds*float64(time.Second)), time.Nanosecond), nil // 0 would mean no limit
}

// WithStatus attaches an HTTP status to an error, for a status that the error's Reason does not
// imply. It applies only if nothing has been sent.
func WithStatus(status int, cause error) error { return &refusal{cause, status} }

// NotKept returns the refusal, with status 410, for a stream whose events are not kept. The refusal
// for a stream that failed has the stream's own reason and path, so that a reader that reconnects
// gets the same ending as all others. record is the hop's record of the stream, or nil.
func NotKept(hop, id string, record *streamv1.Record) error {
	e := streamerr.New(streamerr.NotFound, "the events of the stream %q were not kept, or have been dropped", id)
	if reason := streamerr.Reason(record.GetReason()); reason != streamerr.Unspecified && reason != streamerr.Completed {
		e.Reason, e.Path = reason, streamerr.NewPath(record.GetPath()...).TrimHop(hop) // the hop adds itself again, as to each refusal
		e.Message = fmt.Sprintf("the stream %q has ended, and its events are not kept: %s", id, record.GetMessage())
	}
	return WithStatus(http.StatusGone, e)
}

type refusal struct {
	cause  error
	status int
}

func (r *refusal) Error() string { return r.cause.Error() }
func (r *refusal) Unwrap() error { return r.cause }

// Body returns the body of a JSON request of an owner, and frees the request's own copy.
func (d *Desk) Body(c *app.RequestContext, owner string) ([]byte, error) {
	if !isJSON(string(c.ContentType())) && (!Form(c).AnyType || Browser(c)) {
		// A browser asks for permission before it sends this type to another site, but sends other
		// types without asking. So this check also refuses pages of other sites.
		return nil, WithStatus(http.StatusUnsupportedMediaType, streamerr.InvalidParam("Content-Type", "Content-Type must be application/json"))
	}
	if enc := string(c.GetHeader("Content-Encoding")); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, WithStatus(http.StatusUnsupportedMediaType, streamerr.InvalidParam("Content-Encoding", "Content-Encoding %.32q is not supported; send the body as it is", enc))
	}
	all := connection.BodyOf(c)
	body, more, err := read(all, nil, min(freeBody, d.MaxBody)+1)
	if more && d.MaxBody > freeBody {
		body, more, err = d.readLong(c, all, owner, body)
	}
	switch {
	case errors.Is(err, streamerr.Overloaded):
		c.SetConnectionClose() // the rest is not read
		return nil, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, WithStatus(http.StatusRequestTimeout, streamerr.New(streamerr.Deadline, "the body did not arrive in time (--read-timeout)"))
	case connection.TrailerTooLarge(err):
		return nil, WithStatus(http.StatusRequestHeaderFieldsTooLarge, streamerr.New(streamerr.Invalid, "%v", err))
	case err != nil:
		return nil, streamerr.New(streamerr.Invalid, "the body could not be read: %v", err)
	case more:
		return nil, d.TooLarge(c)
	}
	return body, nil
}

// readLong reads the rest of a long body, which begins with head. more is as in read.
func (d *Desk) readLong(c *app.RequestContext, all *connection.Body, owner string, head []byte) (body []byte, more bool, err error) {
	size := d.MaxBody
	if announced := all.Length(); announced > 0 {
		size = min(size, announced)
	}
	if d.Bodies == nil {
		return read(all, head, d.MaxBody+1)
	}
	share, err := d.Bodies.take(c, owner, size)
	if err != nil {
		return nil, false, err
	}
	body, more, err = read(all, head, d.MaxBody+1)
	share.shrink(int64(len(body)))
	return body, more, err
}

// isJSON reports whether a content type is JSON's.
func isJSON(contentType string) bool {
	const kind = "application/json"
	if contentType == kind {
		return true
	}
	parsed, _, err := mime.ParseMediaType(contentType)
	return err == nil && parsed == kind
}

// trusted bounds the memory that a request gets for its announced body before any of the body is
// read, in bytes.
const trusted = 64 << 10

// minBody is the smallest buffer for a body, in bytes.
const minBody = 64

// piece bounds the growth of the buffer for a body, in bytes. A longer body is collected in pieces, so that
// it takes no more memory than it has bytes until it is complete.
const piece = 2 * freeBody

// read reads a body, which begins with body. If it has limit bytes, more is true, and the result is a part of
// it: all of it unless it is longer than a piece.
func read(all *connection.Body, body []byte, limit int64) (whole []byte, more bool, err error) {
	if body == nil {
		body = make([]byte, 0, min(max(all.Length(), minBody), trusted)+1) // one byte is free when the end arrives
	}
	var before [][]byte
	for left := limit - int64(len(body)); left > 0; {
		switch {
		case len(body) < cap(body):
		case len(body) < piece:
			body = slices.Grow(body, len(body))
		default:
			before, body = append(before, body), make([]byte, 0, piece)
		}
		n, err := all.Read(body[len(body) : len(body)+int(min(left, int64(cap(body)-len(body))))])
		body, left = body[:len(body)+n], left-int64(n)
		switch {
		case err == io.EOF && before == nil && left > 0: //nolint:errorlint // Read returns it unwrapped
			return body, false, nil
		case err == io.EOF && left > 0: //nolint:errorlint // as above
			return slices.Concat(append(before, body)...), false, nil
		case err != nil && err != io.EOF: //nolint:errorlint // as above
			return body, false, err
		}
	}
	return body, true, nil
}

// TooLarge refuses a request with a body over MaxBody, and closes the connection instead of reading
// the rest of the body.
func (d *Desk) TooLarge(c *app.RequestContext) error {
	c.SetConnectionClose()
	return WithStatus(http.StatusRequestEntityTooLarge, streamerr.New(streamerr.Invalid, "the body has more than %d bytes", d.MaxBody))
}

// Refuse answers a request that did not become a stream.
func (d *Desk) Refuse(c *app.RequestContext, err error) {
	out, status := d.refusal(err)
	status = Error(c, status, d.told(out))
	d.refused(string(c.Response.Header.Peek(IDHeader)), status, out)
}

// Refusal is Refuse for a request that did not arrive by HTTP, such as a message of a WebSocket. It
// returns the status and the body that an HTTP request would have got.
func (d *Desk) Refusal(form *call.Form, id string, err error) (status int, body []byte) {
	out, status := d.refusal(err)
	status, body = form.Refusal(status, d.told(out), id)
	d.refused(id, status, out)
	return status, body
}

// refusal returns the error for the client, and its HTTP status.
func (d *Desk) refusal(err error) (*streamerr.Error, int) {
	out := streamerr.Via(d.Name, err)
	if r, ok := errors.AsType[*refusal](err); ok {
		return out, r.status
	}
	return out, out.Reason.HTTPStatus()
}

// told returns the error that the client receives. The text of an unclassified error comes from a library,
// or from a server behind this process, such as Redis: only the log has it.
func (d *Desk) told(out *streamerr.Error) *streamerr.Error {
	if out.Reason != streamerr.Internal || out.Message != "" || out.Cause == nil {
		return out
	}
	hidden := *out
	hidden.Message = "an unexpected error; the log of " + d.Name + " says more"
	return &hidden
}

// refused counts and logs a refusal.
func (d *Desk) refused(id string, status int, out *streamerr.Error) {
	d.Metrics.Refused(out.Reason)
	d.Log.Info("request refused", "stream", id, "hop", d.Name,
		"status", status, "reason", out.Reason.String(), "param", out.Param, "message", out.Text())
}

// Bound is middleware that refuses requests whose header is refused, and those whose announced body
// is too large, before reading any of the body.
func (d *Desk) Bound(ctx context.Context, c *app.RequestContext) {
	defer endShare(c)
	if err := d.bound(c); err != nil {
		c.SetConnectionClose()
		ID(c)
		c.Abort()
		if out, status := d.refusal(err); status == http.StatusHTTPVersionNotSupported && connection.GoAway(c, out.Text()) {
			d.refused("", status, out)
			return
		}
		d.Refuse(c, err)
		return
	}
	c.Next(ctx)
}

// bound returns the reason to refuse a request for its header, or nil.
func (d *Desk) bound(c *app.RequestContext) error {
	switch connection.Check(c) {
	case connection.NotHTTP1:
		return WithStatus(http.StatusHTTPVersionNotSupported, streamerr.New(streamerr.Invalid, "this port speaks HTTP/1.1; HTTP/2 needs TLS (--tls-cert)"))
	case connection.TooMany:
		return WithStatus(http.StatusRequestHeaderFieldsTooLarge, streamerr.New(streamerr.Invalid, "the header has more than %d fields", connection.MaxFields))
	case connection.Accepted:
	}
	if connection.BodyOf(c).Length() > d.MaxBody {
		return d.TooLarge(c)
	}
	return nil
}

// Recover is middleware that answers a panic outside of a stream. Package rpc recovers only panics
// of streams.
func (d *Desk) Recover(ctx context.Context, c *app.RequestContext) {
	defer func() {
		if v := recover(); v != nil {
			d.Log.Error("panic in a handler", "path", string(c.Path()), "panic", panicvalue.Text(v), "stack", string(debug.Stack()))
			id := string(c.Response.Header.Peek(IDHeader))
			c.Response.Reset()
			if id == "" {
				ID(c)
			} else {
				setID(c, id)
			}
			d.Refuse(c, streamerr.New(streamerr.Internal, "a bug in %s; its log has the details", d.Name))
		}
	}()
	c.Next(ctx)
}

// JSON answers with a body.
func JSON(c *app.RequestContext, body []byte) { c.Data(http.StatusOK, "application/json", body) }

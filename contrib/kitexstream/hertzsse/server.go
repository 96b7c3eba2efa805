package hertzsse

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/protocol/http1/resp"

	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// Server returns a middleware for routes that answer with SSE. Ordinary responses of the handler
// pass unchanged.
func Server(r *monitor.Monitor) app.HandlerFunc {
	return func(base context.Context, c *app.RequestContext) {
		header := func(key string) string { return string(c.Request.Header.Peek(key)) }
		via := streamerr.ParsePath(header(streamerr.ViaHeader))
		call := &serverCall{base: base, caller: monitor.UnnamedPeer, c: c}
		if len(via) > 0 {
			call.caller = via[len(via)-1]
		}
		call.stream = r.Begin(base, monitor.Call{
			Method: monitor.Method{Side: monitor.Server, System: monitor.SSE, Name: c.FullPath()},
			Peer:   call.caller, Via: via,
			Parent:  monitor.ReadParent(header),
			Stopped: call.stopped,
		})
		call.stream.Note(monitor.RecvHeader, "", &streamerr.Error{Path: via})
		defer context.AfterFunc(base, call.reset)()
		w := &writer{call: call, before: c.Response.GetHijackWriter()}
		c.Response.HijackWriter(w) // sse.NewWriter uses the writer of the response
		returned := false
		defer func() {
			mine := c.Response.GetHijackWriter() == network.ExtWriter(w)
			streams := w.next != nil || returned && mine && w.close()
			if mine && !streams {
				c.Response.HijackWriter(w.before)
			}
			switch {
			case !returned:
				call.stream.End(&streamerr.Error{Reason: streamerr.Internal, Message: "the handler panicked"})
			case !w.isEventStream() && fromStatus(c.Response.StatusCode()) == nil:
				call.stream.Discard()
			default:
				call.stream.End(call.ending(w))
			}
		}()
		c.Next(monitor.With(base, call.stream))
		returned = true
	}
}

// A serverCall is one stream of a handler.
type serverCall struct {
	base   context.Context //nolint:containedctx // ends with the client's connection
	caller string
	c      *app.RequestContext
	stream *monitor.Stream

	headed, gone sync.Once // each event is recorded once

	mu       sync.Mutex // guards the following fields
	writeErr error      // the first error of the writer
}

// stopped returns why the client ended the stream, or nil.
func (s *serverCall) stopped() *streamerr.Error {
	s.mu.Lock()
	err := s.writeErr
	s.mu.Unlock()
	if late, ok := errors.AsType[net.Error](err); errors.Is(err, os.ErrDeadlineExceeded) || ok && late.Timeout() {
		return &streamerr.Error{Reason: streamerr.SlowReader, Message: "the client did not read within the write timeout", Cause: err}
	}
	if err == nil {
		err = s.base.Err()
	}
	if err == nil {
		return nil
	}
	return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath(s.caller), Message: "the client closed its connection", Cause: err}
}

// reset records that the client is gone.
func (s *serverCall) reset() {
	s.gone.Do(func() {
		if why := s.stream.Stopped(); why != nil { // the handler has not returned
			s.stream.Note(monitor.RecvRst, monitor.CodeCancel, why)
		}
	})
}

// ending returns the ending of a stream whose handler returned.
func (s *serverCall) ending(w *writer) *streamerr.Error {
	status := s.c.Response.StatusCode()
	s.headed.Do(func() {
		s.stream.Note(monitor.SendHeader, strconv.Itoa(status), nil)
		w.headerDue = true
	})
	if w.next != nil && w.before == nil && !w.headerDue {
		_ = w.Finalize() // Hertz calls Finalize next; an error ends the stream
	}
	if why := s.stream.Stopped(); why != nil {
		s.reset()
		return why
	}
	if last := s.c.Errors.Last(); last != nil {
		if e := s.stream.Known(last.Err); e != nil {
			return e
		}
		return streamerr.As(last.Err)
	}
	if e := fromStatus(status); e != nil {
		return e
	}
	return monitor.Completed()
}

// A writer records the events of an SSE stream. Each Write of an sse.Writer is one event or
// comment, and a Flush follows it. Until the first of these Flushes the writer behaves like a
// response without a writer: Hertz calls Write and SetBody also for the bodies of ordinary
// responses.
type writer struct {
	call   *serverCall
	before network.ExtWriter // the writer of another middleware, or nil

	// Owned by the goroutine that writes the response.
	next network.ExtWriter // writes the stream; nil until the stream has begun
	mark int               // the length of the body before the last Write
	// headerDue means that Hertz writes the header when the handlers have returned: until then they
	// may change it.
	headerDue bool

	end sync.Once
}

// isEventStream reports whether the response has the type of an SSE stream.
func (w *writer) isEventStream() bool {
	return bytes.HasPrefix(w.call.c.Response.Header.ContentType(), []byte("text/event-stream"))
}

// begin begins the stream.
func (w *writer) begin() {
	c := w.call.c
	w.next = w.before
	if w.next == nil {
		w.next = resp.NewChunkedBodyWriter(&c.Response, c.GetWriter())
	}
}

// Write implements network.ExtWriter.
func (w *writer) Write(p []byte) (int, error) {
	if w.next == nil && w.before != nil && w.isEventStream() {
		w.begin() // the response had a writer without this one, too
	}
	switch {
	case w.next != nil:
		return w.event(p)
	case w.before != nil:
		return w.before.Write(p)
	}
	body := w.call.c.Response.BodyBuffer()
	w.mark = body.Len()
	return body.Write(p)
}

// event writes an event or a comment.
func (w *writer) event(p []byte) (int, error) {
	s := w.call
	s.headed.Do(func() { s.stream.Note(monitor.SendHeader, strconv.Itoa(s.c.Response.StatusCode()), nil) })
	n, err := w.next.Write(p)
	if err == nil && len(p) > 0 && p[0] != ':' {
		s.stream.Sent(len(p))
	}
	return n, w.check(err)
}

// SetBody sets the body of an ordinary response, as Response.SetBody does without this writer.
func (w *writer) SetBody(b []byte) {
	switch setter, ok := w.before.(interface{ SetBody(b []byte) }); {
	case w.next != nil:
		_, _ = w.event(b)
	case ok:
		setter.SetBody(b)
	case w.before != nil:
		_, _ = w.before.Write(b)
	default:
		w.call.c.Response.BodyBuffer().Set(b)
	}
}

// Flush implements network.ExtWriter.
func (w *writer) Flush() error {
	switch {
	case w.next != nil:
	case w.before != nil:
		return w.before.Flush()
	case !w.isEventStream() || len(w.call.c.Response.BodyBytes()) <= w.mark:
		return nil // Hertz flushes nothing without a writer
	default:
		w.begin()
		if _, err := w.event(w.call.c.Response.BodyBytes()[w.mark:]); err != nil {
			return err
		}
	}
	return w.check(w.next.Flush())
}

// close begins the stream of a handler that made an sse.Writer and sent nothing. Then it reports
// whether the response is a stream.
func (w *writer) close() bool {
	r := &w.call.c.Response
	noCache := string(r.Header.Peek("Cache-Control")) == "no-cache" // of sse.NewWriter
	if w.next == nil && w.isEventStream() && noCache && !r.IsBodyStream() && len(r.BodyBytes()) == 0 {
		w.begin()
	}
	return w.next != nil
}

// Finalize implements network.ExtWriter.
func (w *writer) Finalize() error {
	if w.next == nil {
		return nil
	}
	err := w.check(w.next.Finalize())
	if err == nil {
		w.end.Do(func() { w.call.stream.Note(monitor.SendTrailer, "", nil) })
	}
	return err
}

// check keeps the first error.
func (w *writer) check(err error) error {
	if err != nil {
		w.call.mu.Lock()
		defer w.call.mu.Unlock()
		if w.call.writeErr == nil {
			w.call.writeErr = err
		}
	}
	return err
}

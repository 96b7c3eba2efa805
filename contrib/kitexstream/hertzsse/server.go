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

	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// Server returns a middleware for routes that answer with SSE. A handler may still refuse a request with an ordinary response.
func Server(r *telemetry.Monitor) app.HandlerFunc {
	return func(base context.Context, c *app.RequestContext) {
		header := func(key string) string { return string(c.Request.Header.Peek(key)) }
		via := streamerr.ParsePath(header(streamerr.ViaHeader))
		call := &serverCall{base: base, caller: telemetry.UnnamedPeer, c: c}
		if len(via) > 0 {
			call.caller = via[len(via)-1]
		}
		call.stream = r.Begin(base, telemetry.Call{
			Method: telemetry.Method{Side: telemetry.Server, System: telemetry.SSE, Name: c.FullPath()},
			Peer:   call.caller, Via: via,
			Parent:  streamtrace.ParseParent(header(streamtrace.Traceparent), header(streamtrace.Tracestate)),
			Stopped: call.stopped,
		})
		call.stream.Note(streamtrace.RecvHeader, "", &streamerr.Error{Path: via})
		defer context.AfterFunc(base, call.reset)()
		w := &writer{ExtWriter: resp.NewChunkedBodyWriter(&c.Response, c.GetWriter()), call: call}
		c.Response.HijackWriter(w) // which sse.NewWriter then uses
		returned := false
		defer func() {
			if !call.begun() {
				c.Response.HijackWriter(nil) // an ordinary response
			}
			if !returned {
				call.stream.End(&streamerr.Error{Reason: streamerr.Internal, Message: "the handler panicked"})
				return
			}
			call.stream.End(call.ending(w))
		}()
		c.Next(telemetry.With(base, call.stream))
		returned = true
	}
}

// A serverCall is one stream of a handler.
type serverCall struct {
	base   context.Context //nolint:containedctx // ends with the client's connection
	caller string
	c      *app.RequestContext
	stream *telemetry.Stream

	headed, gone sync.Once // each is noted once

	mu       sync.Mutex // guards the following fields
	written  bool
	writeErr error // the first
}

func (s *serverCall) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

// stopped returns why the client has ended the stream, or nil.
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

// reset notes that the client is gone.
func (s *serverCall) reset() {
	s.gone.Do(func() { s.stream.Note(streamtrace.RecvRst, streamtrace.CodeCancel, s.stream.Stopped()) })
}

// ending returns how a stream ended whose handler has returned.
func (s *serverCall) ending(w *writer) *streamerr.Error {
	status := s.c.Response.StatusCode()
	if s.begun() {
		_ = w.Finalize() // Hertz is about to; a failure is the writer's
	} else {
		s.headed.Do(func() { s.stream.Note(streamtrace.SendHeader, strconv.Itoa(status), nil) })
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
	return telemetry.Completed()
}

// A writer tells the call what is written. Each Write of an sse.Writer is one event or comment.
type writer struct {
	network.ExtWriter
	call *serverCall
	end  sync.Once
}

var eventStream = []byte("text/event-stream")

// Write implements network.ExtWriter.
func (w *writer) Write(p []byte) (int, error) {
	s := w.call
	s.mu.Lock()
	s.written = true
	s.mu.Unlock()
	s.headed.Do(func() { s.stream.Note(streamtrace.SendHeader, strconv.Itoa(s.c.Response.StatusCode()), nil) })
	n, err := w.ExtWriter.Write(p)
	if err == nil && len(p) > 0 && p[0] != ':' && bytes.HasPrefix(s.c.Response.Header.ContentType(), eventStream) {
		s.stream.Sent(len(p))
	}
	return n, w.check(err)
}

// SetBody keeps the body of an ordinary response, which Hertz would else write as a part of the stream.
func (w *writer) SetBody(b []byte) { _, _ = w.call.c.Response.BodyBuffer().Write(b) }

// Flush implements network.ExtWriter.
func (w *writer) Flush() error { return w.check(w.ExtWriter.Flush()) }

// Finalize implements network.ExtWriter.
func (w *writer) Finalize() error {
	err := w.check(w.ExtWriter.Finalize())
	if err == nil {
		w.end.Do(func() { w.call.stream.Note(streamtrace.SendTrailer, "", nil) })
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

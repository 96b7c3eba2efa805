package hertzsse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync"

	"github.com/cloudwego/hertz/pkg/protocol"
	"github.com/cloudwego/hertz/pkg/protocol/sse"

	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// A Doer sends a request, like client.Client of Hertz. Make the client with
// client.WithResponseBodyStream(true).
type Doer interface {
	Do(ctx context.Context, req *protocol.Request, resp *protocol.Response) error
}

// A Client opens SSE streams of one server.
type Client struct {
	Monitor *monitor.Monitor
	Do      Doer
	Peer    string // the server's name in paths
}

// Open sends req and returns a reader of the events of the response. The caller must close the
// reader. route is the name of the method in metrics, such as "/prices/:symbol". A status of 400
// and above is an error with the reason of the status. An ordinary response below 400 is the error
// of sse.NewReader; no metric counts it, because it is not a stream.
func (c *Client) Open(ctx context.Context, req *protocol.Request, route string) (*Reader, error) {
	ctx, release := monitor.Link(ctx)
	call := &clientCall{above: monitor.From(ctx), release: release, stream: c.Monitor.Begin(ctx, monitor.Call{
		Method: monitor.Method{Side: monitor.Client, System: monitor.SSE, Name: route}, Peer: c.Peer,
	})}
	call.stream.Headers(req.Header.Set)
	sse.AddAcceptMIME(req)
	var resp protocol.Response
	call.stream.Note(monitor.SendHeader, "", nil)
	if err := c.Do.Do(ctx, req, &resp); err != nil {
		call.finish(ctx, err)
		return nil, err
	}
	call.stream.Note(monitor.RecvHeader, strconv.Itoa(resp.StatusCode()), nil)
	if refused := fromStatus(resp.StatusCode()); refused != nil {
		_ = resp.CloseBodyStream()
		refused.Path = streamerr.NewPath(c.Peer)
		err := fmt.Errorf("%s: %w", route, refused)
		call.finish(ctx, err)
		return nil, err
	}
	r, err := sse.NewReader(&resp)
	if err != nil {
		_ = resp.CloseBodyStream()
		call.discard()
		return nil, fmt.Errorf("%s: %w", route, err)
	}
	reader := &Reader{r: r, ctx: ctx, call: call, body: resp.BodyStream()}
	runtime.AddCleanup(reader, func(call *clientCall) { call.finish(context.Background(), errDropped) }, call)
	return reader, nil
}

var (
	errDropped = streamerr.New(streamerr.PeerReset, "the reader was dropped before the end of its stream")
	errClosed  = streamerr.New(streamerr.PeerReset, "the reader was closed before the end of its stream")
)

// A Reader is an sse.Reader that counts its events.
type Reader struct {
	r    *sse.Reader
	ctx  context.Context //nolint:containedctx // the context of the request, whose end ends the body
	call *clientCall
	body io.Reader

	complete bool // the reader has read the end; owned by the reading goroutine
}

// Read reads an event like Read of sse.Reader. It returns io.EOF at the end.
func (r *Reader) Read(e *sse.Event) error {
	err := r.r.Read(e)
	if err != nil {
		r.complete = errors.Is(err, io.EOF)
		r.call.finish(r.ctx, err)
		return err
	}
	r.call.event(e)
	return nil
}

// ForEach calls each for all events like ForEach of sse.Reader: until each returns an error, ctx is
// done, or the stream ends, which is not an error. Unlike sse.Reader, ForEach leaves no goroutine
// that may close the response of a later request.
func (r *Reader) ForEach(ctx context.Context, each func(e *sse.Event) error) error {
	closed := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(closed)
		r.forceClose()
	})
	defer func() {
		if !unwatch() {
			<-closed
		}
	}()
	e := sse.NewEvent()
	defer e.Release()
	for {
		err := r.r.Read(e)
		switch {
		case ctx.Err() != nil:
			r.call.finish(ctx, ctx.Err())
			return ctx.Err()
		case errors.Is(err, io.EOF):
			r.complete = true
			r.call.finish(ctx, io.EOF)
			return nil
		case err != nil:
			r.call.finish(ctx, err)
			return err
		}
		r.call.event(e)
		if err := each(e); err != nil {
			r.call.finish(ctx, ownError{err})
			return err
		}
	}
}

// forceClose closes the connection, so that reads return.
func (r *Reader) forceClose() {
	if body, ok := r.body.(interface{ ForceClose() error }); ok {
		_ = body.ForceClose()
	}
}

// LastEventID returns the id of the last event that had one.
func (r *Reader) LastEventID() string { return r.r.LastEventID() }

// SetMaxBufferSize bounds the bytes of a line like SetMaxBufferSize of sse.Reader.
func (r *Reader) SetMaxBufferSize(size int) { r.r.SetMaxBufferSize(size) }

// Close closes the response. If the stream has not ended, Close ends it and closes the connection:
// Close of sse.Reader would wait for the end.
func (r *Reader) Close() error {
	r.call.finish(r.ctx, errClosed)
	if r.complete {
		return r.r.Close()
	}
	r.forceClose()
	_ = r.r.Close() // the error says that the rest cannot be read
	return nil
}

// A clientCall is one stream of a client.
type clientCall struct {
	stream  *monitor.Stream
	above   *monitor.Stream // the stream of the handler that made the call, or nil
	release func() bool     // of monitor.Link
	once    sync.Once
}

// discard ends the call without counting it.
func (c *clientCall) discard() {
	c.once.Do(func() {
		c.release()
		c.stream.Discard()
	})
}

func (c *clientCall) event(e *sse.Event) { c.stream.Received(len(e.ID) + len(e.Type) + len(e.Data)) }

// finish ends the stream with the error of the reader. io.EOF means that the stream is complete.
func (c *clientCall) finish(ctx context.Context, err error) {
	c.once.Do(func() {
		c.release()
		c.stream.End(c.ending(ctx, err))
		if own, ok := errors.AsType[ownError](err); ok {
			err = own.error
		}
		if !errors.Is(err, io.EOF) {
			c.above.Below(err, c.stream.Ending())
		}
	})
}

// An ownError is an error of the application's code that handles events.
type ownError struct{ error }

// Unwrap returns the error.
func (e ownError) Unwrap() error { return e.error }

func (c *clientCall) ending(ctx context.Context, err error) *streamerr.Error {
	if err == io.EOF { //nolint:errorlint // the reader's own; an error of the application may wrap io.EOF
		c.stream.Note(monitor.RecvTrailer, "", nil)
		return monitor.Completed(c.stream.Peer())
	}
	if why := monitor.Cause(ctx); why != nil {
		c.stream.Note(monitor.SendRst, monitor.CodeCancel, c.stream.Arrived(why))
		return why
	}
	_, own := errors.AsType[ownError](err)
	if e, ok := errors.AsType[*streamerr.Error](err); ok || own {
		if !ok {
			e = streamerr.As(err)
		}
		if own || len(e.Path) == 0 { // this process ended the stream
			c.stream.Note(monitor.SendRst, monitor.CodeCancel, c.stream.Arrived(e))
		}
		return e
	}
	e := &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath(c.stream.Peer()), Message: "the response was interrupted, or there was none", Cause: err}
	c.stream.Note(monitor.RecvRst, monitor.CodeLost, e)
	return e
}

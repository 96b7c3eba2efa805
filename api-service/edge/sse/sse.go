// Package sse writes server-sent events in the forms that all clients understand, and fills silence with comments.
package sse

import (
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol/sse"
)

// keepAlive is the comment that all clients skip: one line, and no blank line after it, which some take for an event.
const keepAlive = " keep-alive"

// A Writer writes the events of one response. The handler owns it, but for beat, which a timer calls.
type Writer struct {
	every  time.Duration // without an event until a comment is sent; 0 is never
	opened func()        // told that the headers go out; nil for nobody
	failed func(error)   // told of an error of a comment

	mu     sync.Mutex
	c      *app.RequestContext
	w      *sse.Writer // nil until the headers are written
	timer  *time.Timer
	closed bool   // beat comes too late
	buf    []byte // reused
}

// New returns the writer of a response. Headers go out with the first event, or once first has passed, because
// proxies and clients give up on silent connections; New then calls opened if it is not nil. A comment goes out
// whenever no event was written for every; 0 means never. failed is called if a comment cannot be written. The
// handler calls Close.
func New(c *app.RequestContext, first, every time.Duration, opened func(), failed func(error)) *Writer {
	w := &Writer{every: every, opened: opened, failed: failed, c: c}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(first, w.beat)
	return w
}

func (w *Writer) open() *sse.Writer {
	if w.w == nil {
		w.c.Header("X-Accel-Buffering", "no")
		unchunked(w.c)
		w.w = sse.NewWriter(w.c)
		if w.opened != nil {
			w.opened()
		}
	}
	return w.w
}

// beat sends the headers, if they have not been sent, and a comment.
func (w *Writer) beat() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if err := w.open().WriteComment(keepAlive); err != nil {
		w.failed(err)
		return
	}
	w.next()
}

// next puts the next comment off. mu is held.
func (w *Writer) next() {
	switch {
	case w.closed:
	case w.every > 0:
		w.timer.Reset(w.every)
	default:
		w.timer.Stop()
	}
}

// Send sends one data line.
func (w *Writer) Send(data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
	return w.open().WriteEvent("", "", data)
}

// Event sends one event, whose data is one line. The id comes last: some clients take it for that of the last event that they had
// as soon as they have read its line, and would come back for what follows an event whose data they have not.
func (w *Writer) Event(id, name string, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
	w.open()
	w.buf = append(append(append(w.buf[:0], "event: "...), name...), "\ndata: "...)
	w.buf = append(append(append(append(w.buf, data...), "\nid: "...), id...), "\n\n"...)
	out := w.c.Response.GetHijackWriter()
	if _, err := out.Write(w.buf); err != nil {
		return err
	}
	return out.Flush()
}

// Retry sends the headers, and how long a reader is to wait before it comes back.
func (w *Writer) Retry(after time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
	hint := sse.NewEvent()
	defer hint.Release()
	hint.SetRetry(after)
	return w.open().Write(hint)
}

// Finish ends the body of the response. Close comes first. The server would end the body only after the handler has returned.
func (w *Writer) Finish() error {
	if out := w.c.Response.GetHijackWriter(); out != nil {
		return out.Finalize()
	}
	return nil
}

// Close ends the comments, and reports whether the headers have been sent.
func (w *Writer) Close() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.timer.Stop()
	return w.w != nil
}

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/lab"
)

// A chunk is the data of one event of a stream.
type chunk struct {
	ID      string
	Object  string
	Created int64
	Model   string
	Choices []struct {
		Index        int
		Delta        struct{ Role, Content *string }
		FinishReason *string `json:"finish_reason"`
	}
	Usage *usage
	Error *refusal
}

// A live is a stream that is being read.
type live struct {
	id     string // of the stream
	resp   *http.Response
	events *lab.Events
	// earlier says that the api-service is of the last release, which ends the body of a failed stream
	// like that of a complete one.
	earlier bool
	ending
}

// An ending is a client's view of a stream.
type ending struct {
	text   strings.Builder
	finish string
	usage  *usage
	err    *refusal
	done   bool // [DONE] has come
}

// open requests a stream, which must start. The connection is closed after the test.
func (w *whence) open(t *testing.T, a ask) *live {
	t.Helper()
	a["stream"] = true
	resp, err := w.send(t, a, "")
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", resp.StatusCode, readAll(t, resp).body)
	}
	l := newLive(resp)
	t.Cleanup(l.close)
	return l
}

func newLive(resp *http.Response) *live {
	return &live{id: resp.Header.Get(idName), resp: resp, events: lab.NewEvents(resp.Body)}
}

// close closes the client's connection if the stream runs.
func (l *live) close() { _ = l.resp.Body.Close() }

// next reads one event. io.EOF means that the body ended normally.
func (l *live) next() (chunk, error) {
	var c chunk
	e, err := l.events.Next()
	if err != nil || e.Comment != "" {
		return c, err
	}
	if e.Data == lab.Done {
		l.done = true
		return c, nil
	}
	if err := json.Unmarshal([]byte(e.Data), &c); err != nil {
		return c, fmt.Errorf("event %q: %w", e.Data, err)
	}
	for _, choice := range c.Choices {
		if choice.Delta.Content != nil {
			l.text.WriteString(*choice.Delta.Content)
		}
		if choice.FinishReason != nil {
			l.finish = *choice.FinishReason
		}
	}
	if c.Usage != nil {
		l.usage = c.Usage
	}
	if c.Error != nil && l.err != nil {
		return c, fmt.Errorf("event %q is a second error", e.Data)
	}
	if c.Error != nil {
		l.err = c.Error
	}
	return c, nil
}

// begun reads up to the first text.
func (l *live) begun(t *testing.T) *live {
	t.Helper()
	for l.text.Len() == 0 {
		if _, err := l.next(); err != nil {
			t.Fatalf("the stream ended before its text: %v", err)
		}
	}
	return l
}

// rest reads to the end. The body has a regular end if and only if the stream has not failed, unless
// the api-service is of the last release.
func (l *live) rest(t *testing.T) *ending {
	t.Helper()
	for {
		_, err := l.next()
		switch clean := errors.Is(err, io.EOF); {
		case err == nil:
		case clean == (l.err != nil) && (!clean || !l.earlier):
			t.Fatalf("the body ends with %v after the error %+v", err, l.err)
		default:
			return &l.ending
		}
	}
}

// completed reads to the end of a stream that must complete, and returns the text.
func (l *live) completed(t *testing.T) string {
	t.Helper()
	e := l.rest(t)
	if e.err != nil || !e.done || e.finish == "" {
		t.Fatalf("error %+v, [DONE] %t, finish_reason %q", e.err, e.done, e.finish)
	}
	return e.text.String()
}

// failed reads to the end, which must be one error and no [DONE], and returns the error.
func (l *live) failed(t *testing.T) *refusal {
	t.Helper()
	e := l.rest(t)
	if e.err == nil || e.done || e.finish != "" {
		t.Fatalf("error %+v, [DONE] %t, finish_reason %q", e.err, e.done, e.finish)
	}
	return e.err
}

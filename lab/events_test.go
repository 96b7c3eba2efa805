package lab

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// TestEventsAreReadAsTheyAreWritten: events, comments and hints of one body.
func TestEventsAreReadAsTheyAreWritten(t *testing.T) {
	e := NewEvents(strings.NewReader("retry: 100\n\n: wait\n\n: keep\nid: 1\nevent: delta\ndata: {\"a\":\"b: c\"}\n\ndata: [DONE]\n\n"))
	for _, want := range []Event{{Comment: "wait"}, {Comment: "keep"}, {ID: "1", Name: "delta", Data: `{"a":"b: c"}`}, {Data: Done}} {
		got, err := e.Next()
		if got.At.IsZero() {
			t.Errorf("%+v has no time", got)
		}
		if got.At = want.At; err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	if _, err := e.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last event: %v", err)
	}
}

// TestEventsAreStrict: each of these bodies is an error, and not a normal end.
func TestEventsAreStrict(t *testing.T) {
	for name, body := range map[string]string{
		"a cut line":             "data: x",
		"a cut event":            "data: x\n",
		"two empty lines":        "data: x\n\n\ndata: y\n\n",
		"a carriage return":      "data: x\r\n\r\n",
		"two lines of data":      "data: x\ndata: y\n\n",
		"an unknown field":       "date: x\n\n",
		"no field":               "data\n\n",
		"a comment in an event":  "id: 1\n: wait\ndata: x\n\n",
		"an empty field":         "id: 1\n : wait\ndata: x\n\n",
		"an id that comes again": "id: 1\ndata: x\n\nid: 1\ndata: y\n\n",
		"two endings":            "data: [DONE]\n\ndata: [DONE]\n\n",
		"text after the ending":  "data: [DONE]\n\ndata: x\n\n",
	} {
		e := NewEvents(strings.NewReader(body))
		var err error
		for err == nil {
			_, err = e.Next()
		}
		if want := strings.HasPrefix(name, "a cut"); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) != want || errors.Is(err, ErrFormat) == want {
			t.Errorf("%s ends with %v", name, err)
		}
	}
}

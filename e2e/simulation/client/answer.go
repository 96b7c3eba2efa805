package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// An Answer is the answer that a client got.
type Answer struct {
	Status  int      // 0 if there was no response
	ID      string   // of the stream, in the response's header
	Texts   []string // of the choices
	Done    bool     // [DONE], or a whole answer, has come
	Error   *streamerr.Error
	Tokens  int       // completion_tokens of the usage; -1 if there was none
	Clean   bool      // the body ended as HTTP requires
	Left    time.Time // when the client closed the connection before the end; zero if it did not
	Shut    bool      // the connection had ended before the request's turn
	Stalled bool      // the client stopped reading, temporarily or for good
	Slow    bool      // the client reads slowly, or stopped reading temporarily
	Muxed   bool      // the answer came over HTTP/2, so it may have ended long before the connection
	Asked   time.Time
	Ended   time.Time
	Closed  time.Time     // when the other side closed the connection; zero if it did not
	Waited  time.Duration // the longest wait of a write of the other side for the client
	Reads   []time.Time   // of a client that reads slowly: when it got bytes
	Body    string        // of an answer that is not a stream
	Wrong   string        // the first violation of the format, such as data after the ending

	// Events are the events with an id, of GET /v1/streams/{id}/events.
	Events []Event
	// After is the number of the event after which the client requested events.
	After int

	finished []bool // choices
	usages   int
}

// An Event is an event of a kept stream.
type Event struct {
	Epoch string
	Seq   int
	Name  string
	Texts []string        // of a delta, by choice
	Cause streamerr.Error // of an ending: Reason and Path are set
}

// Closing reports whether the event ends its stream.
func (e *Event) Closing() bool { return e.Name == "ending" || e.Name == "error" }

// wrong records a violation of the format.
func (a *Answer) wrong(what string) {
	if a.Wrong == "" {
		a.Wrong = what
	}
}

// readBody reads a body that is not a stream.
func (a *Answer) readBody(in io.Reader) {
	body, err := io.ReadAll(in)
	a.Clean, a.Body = err == nil, string(body)
	if e, ok := streamerr.ParseJSON(body); ok && a.Status != http.StatusOK {
		a.Error = e
		return
	}
	if !a.Clean {
		return
	}
	a.chunk(body)
	a.Done = a.Status == http.StatusOK
}

// readEvents reads a stream of events. heard is called with the number of events with an id so far,
// and reports whether to read on.
func (a *Answer) readEvents(in io.Reader, heard func(n int) (more bool)) {
	lines := bufio.NewReader(in)
	var name, id, data string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if a.Clean = errors.Is(err, io.EOF); a.Clean && (line != "" || data != "") {
				a.wrong("the body ends within an event")
			}
			return
		}
		if line[0] == ':' { // a comment
			continue
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "event":
			name = value
		case "id":
			id = value
		case "data":
			data = value
		case "": // the end of an event
			if id != "" {
				a.kept(id, name, data)
				if !heard(len(a.Events)) {
					return
				}
			} else if data != "" {
				a.event([]byte(data))
			}
			name, id, data = "", "", ""
		}
	}
}

// event reads a data line of the answer to a request.
func (a *Answer) event(data []byte) {
	if a.Done || a.Error != nil {
		a.wrong("there is data after the ending: " + string(data))
		return
	}
	if string(data) == "[DONE]" {
		a.Done = true
		return
	}
	if bytes.HasPrefix(data, []byte(`{"error"`)) {
		a.Error, _ = streamerr.ParseJSON(data)
		return
	}
	a.chunk(data)
}

func (a *Answer) chunk(data []byte) {
	var c struct {
		Choices []struct {
			Index          int
			Delta, Message struct{ Content string }
			Finish         string `json:"finish_reason"`
		}
		Usage *struct {
			Tokens int `json:"completion_tokens"`
		}
	}
	if json.Unmarshal(data, &c) != nil {
		a.wrong("there is no JSON in " + string(data))
		return
	}
	for _, choice := range c.Choices {
		a.say(choice.Index, choice.Delta.Content+choice.Message.Content)
		if choice.Finish == "" {
			continue
		}
		for len(a.finished) <= choice.Index {
			a.finished = append(a.finished, false)
		}
		if a.finished[choice.Index] {
			a.wrong("a choice has finished twice")
		}
		a.finished[choice.Index] = true
	}
	if c.Usage != nil {
		a.Tokens = c.Usage.Tokens
		if a.usages++; a.usages > 1 {
			a.wrong("there are two usages")
		}
	}
}

// say appends text to a choice.
func (a *Answer) say(choice int, text string) {
	for len(a.Texts) <= choice {
		a.Texts = append(a.Texts, "")
	}
	if text != "" && choice < len(a.finished) && a.finished[choice] {
		a.wrong("a choice has text after its finish reason")
	}
	a.Texts[choice] += text
}

// kept reads an event of a kept stream.
func (a *Answer) kept(id, name, data string) {
	epoch, seq, _ := strings.Cut(id, ".")
	e := Event{Epoch: epoch, Name: name}
	var err error
	if e.Seq, err = strconv.Atoi(seq); err != nil {
		a.wrong("the id of an event is " + id)
	}
	if n := len(a.Events); n > 0 {
		switch last := a.Events[n-1]; {
		case last.Closing():
			a.wrong("there is an event after the closing event: " + name)
		case last.Seq >= e.Seq || last.Epoch != epoch:
			a.wrong("event " + id + " comes after event " + last.Epoch + "." + strconv.Itoa(last.Seq))
		case name != "delta" && last.Seq+1 != e.Seq:
			a.wrong("event " + id + " is missing before event " + name)
		}
	}
	switch name {
	case "delta":
		var d struct {
			Text    string
			Choices []struct {
				Index int
				Text  string
			}
		}
		err = json.Unmarshal([]byte(data), &d)
		e.Texts = []string{d.Text}
		for _, c := range d.Choices {
			for len(e.Texts) <= c.Index {
				e.Texts = append(e.Texts, "")
			}
			e.Texts[c.Index] += c.Text
		}
	case "usage":
		var u struct {
			Tokens int `json:"completion_tokens"`
		}
		err = json.Unmarshal([]byte(data), &u)
		a.Tokens = u.Tokens
	case "ending":
		var end struct {
			Reason string
			Path   []string
		}
		err = json.Unmarshal([]byte(data), &end)
		e.Cause = streamerr.Error{Reason: streamerr.ParseReason(end.Reason), Path: streamerr.NewPath(end.Path...)}
	case "error":
		if failed, ok := streamerr.ParseJSON([]byte(data)); ok {
			e.Cause = *failed
		}
	default:
		a.wrong("there is an event " + name)
	}
	if err != nil {
		a.wrong("event " + id + " has the data " + data)
	}
	a.Events = append(a.Events, e)
}

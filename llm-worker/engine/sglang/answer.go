package sglang

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/jsonscan"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A call is one request over HTTP.
type call struct {
	control *stream.Control // of the stream; may be nil
	client  *overhttp.Client
	stream  *overhttp.Stream
	answer  answer
	abort   []byte // the body that aborts it

	ended     atomic.Bool // the call has ended by itself
	stop      sync.Once
	confirmed bool // set by Stop
}

// An answer is the part of the server's answer that has come.
type answer struct {
	limit  int // requested tokens
	ids    beside.Answer
	seen   int           // tokens received
	likely *likely.Queue // nil unless the request asks for log-probabilities
	finish llmv1.Finish
	usage  beside.Usage
}

// An event is the data of one event of /generate. Its text is left out, because it repeats the ids.
type event struct {
	IDs   []uint32        `json:"output_ids"`
	Meta  *meta           `json:"meta_info"`
	Error json.RawMessage `json:"error"`
}

type meta struct {
	Finish     *finishReason `json:"finish_reason"`
	Prompt     uint32        `json:"prompt_tokens"`
	Completion uint32        `json:"completion_tokens"`
	Cached     *uint32       `json:"cached_tokens"`

	Logprobs []tokenLogprob   `json:"output_token_logprobs"`
	Top      [][]tokenLogprob `json:"output_top_logprobs"`
}

type finishReason struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Status  int    `json:"status_code"`
}

// scan reads an event of the usual form into an empty one. What it accepts, encoding/json would read in the
// same way; what it rejects, encoding/json has to read.
func (e *event) scan(data []byte) bool {
	s := jsonscan.New(data)
	return s.Object(func(name []byte) bool {
		switch string(name) {
		case "output_ids":
			return s.Uint32s(&e.IDs)
		case "meta_info":
			return jsonscan.Pointer(&s, &e.Meta, func(m *meta) bool { return m.scan(&s) })
		case "error":
			return s.Value(&e.Error)
		default:
			return s.Other(name)
		}
	}) && s.End()
}

func (m *meta) scan(s *jsonscan.Scanner) bool {
	return s.Object(func(name []byte) bool {
		switch string(name) {
		case "finish_reason":
			return jsonscan.Pointer(s, &m.Finish, func(f *finishReason) bool { return s.Value(f) })
		case "prompt_tokens":
			return s.Uint32(&m.Prompt)
		case "completion_tokens":
			return s.Uint32(&m.Completion)
		case "cached_tokens":
			return jsonscan.Pointer(s, &m.Cached, s.Uint32)
		case "output_token_logprobs": // of few requests
			return s.Value(&m.Logprobs)
		case "output_top_logprobs":
			return s.Value(&m.Top)
		default:
			return s.Other(name)
		}
	})
}

// next returns the tokens and the ending of one event; [DONE] carries the ending.
func (a *answer) next(data []byte) ([]uint32, *llmv1.End, error) {
	if string(data) == overhttp.Done {
		if a.finish == llmv1.Finish_FINISH_UNSPECIFIED {
			a.finish = a.ids.FinishAt(a.limit, a.seen)
		}
		if a.finish == llmv1.Finish_FINISH_UNSPECIFIED {
			return nil, nil, beside.Lost(nil, "ended the stream without a finish_reason")
		}
		ids, end := a.ids.End(a.finish, a.usage)
		return ids, end, nil
	}
	ids, err := a.take(data)
	return ids, nil, err
}

// closed returns the ending of an answer after its events could not be read further because of err.
// An answer with a finish_reason is complete, with or without [DONE].
func (a *answer) closed(err error) ([]uint32, *llmv1.End, error) {
	if a.finish == llmv1.Finish_FINISH_UNSPECIFIED || !errors.Is(err, streamerr.PeerLost) {
		return nil, nil, err
	}
	ids, end := a.ids.End(a.finish, a.usage)
	return ids, end, nil
}

// take returns the new tokens of one event.
func (a *answer) take(data []byte) ([]uint32, error) {
	var e event
	if !e.scan(data) {
		e = event{}
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, beside.Broken(fmt.Errorf("an event is not an answer: %w", err))
		}
	}
	switch {
	case len(e.Error) > 0 && string(e.Error) != "null":
		return nil, a.failed(overhttp.ReadComplaint(data))
	case e.Meta == nil:
		return nil, beside.Broken(errors.New("an event has no meta_info"))
	case a.finish != llmv1.Finish_FINISH_UNSPECIFIED:
		return nil, beside.Broken(errors.New("the answer continues after its finish_reason"))
	}
	a.ids.Found(e.Meta.Cached)
	a.usage = beside.Usage{Prompt: e.Meta.Prompt, Completion: e.Meta.Completion, Cached: e.Meta.Cached}
	if f := e.Meta.Finish; f != nil {
		if f.Type == "abort" {
			return nil, aborted(f.Message, f.Status)
		}
		var err error
		if a.finish, err = beside.Finish(f.Type); err != nil {
			return nil, err
		}
	}
	fresh, err := a.fresh(e.IDs, int(e.Meta.Completion))
	if err != nil {
		return nil, err
	}
	a.seen += len(fresh)
	if err := a.likely.Add(fresh, positions(e.Meta.Logprobs, e.Meta.Top, len(fresh))); err != nil {
		return nil, beside.Broken(err)
	}
	return a.ids.Take(fresh)
}

// fresh returns the new ids of an event. Each event has either its new ids or, by SGLang's default,
// the whole answer so far. of, the length of the answer, distinguishes them.
func (a *answer) fresh(ids []uint32, of int) ([]uint32, error) {
	switch {
	case len(ids) == of && of >= a.seen:
		return ids[a.seen:], nil
	case a.seen+len(ids) == of:
		return ids, nil
	default:
		return nil, beside.Broken(fmt.Errorf("an event has %d output_ids of %d, and %d had come before", len(ids), of, a.seen))
	}
}

// failed returns the ending for an error in the stream. SGLang writes its ValueErrors, and no other
// errors, without a status: the request is at fault, unless tokens have come; then the cause is
// unknown.
func (a *answer) failed(c *beside.Complaint) error {
	if c.Status == 0 && c.Code == "" && c.Type == "" && a.seen == 0 {
		c.Status = http.StatusBadRequest
	}
	return c.Ending(beside.InAnswer)
}

// aborted returns the ending of a request that SGLang has aborted by itself, with its reason, or that others
// have aborted, without one.
func aborted(message string, status int) error {
	if message == "" && status == 0 {
		return beside.Lost(nil, "has aborted the request, without a reason")
	}
	c := beside.Complaint{Message: message, Status: status}
	return c.Ending("has aborted the request")
}

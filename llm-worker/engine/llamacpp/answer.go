package llamacpp

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/jsonscan"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An answer is the part of the server's answer that has come.
type answer struct {
	pieces pieces
	ids    beside.Answer
	likely *likely.Queue // nil unless the request asks for log-probabilities
	seen   int           // tokens received, lost ones among them
	ahead  bool          // the server counts tokens before it sends them
}

// An event is the data of one event of /completion.
type event struct {
	Text      string   `json:"content"`
	IDs       []uint32 `json:"tokens"`
	Predicted int      `json:"tokens_predicted"` // of the answer so far, see take
	Evaluated uint32   `json:"tokens_evaluated"` // of the prompt
	Stop      bool     `json:"stop"`             // the last event
	StopType  string   `json:"stop_type"`
	Timings   *timings `json:"timings"`

	Probabilities []probability   `json:"completion_probabilities"`
	Error         json.RawMessage `json:"error"`
}

type timings struct {
	Cached *uint32 `json:"cache_n"`
	Read   uint32  `json:"prompt_n"` // prompt tokens that were not cached
}

// A probability is a token with its log-probability.
type probability struct {
	ID      uint32        `json:"id"`
	Logprob float32       `json:"logprob"`
	Top     []probability `json:"top_logprobs"`
}

// stopTypes maps the server's words to finish reasons. "word" is a stop string, and none is sent.
var stopTypes = map[string]string{"eos": "stop", "limit": "length"}

// next returns the tokens and the ending of one event.
func (a *answer) next(data []byte) ([]uint32, *llmv1.End, error) {
	e, err := readEvent(data)
	if err != nil {
		return nil, nil, err
	}
	if !e.Stop {
		ids, err := a.take(e)
		return ids, nil, err
	}
	said, known := stopTypes[e.StopType]
	if !known {
		said = e.StopType
	}
	finish, err := beside.Finish(said)
	if err != nil {
		return nil, nil, err
	}
	ids, end := a.ids.End(finish, beside.Usage{Prompt: e.Evaluated, Completion: uint32(e.Predicted), Cached: e.cached()})
	return ids, end, nil
}

// readEvent reads an event's data. The error is an ending.
func readEvent(data []byte) (*event, error) {
	if string(data) == overhttp.Done {
		return nil, beside.Lost(nil, "ended the stream without its last event")
	}
	e := new(event)
	if !e.scan(data) {
		*e = event{}
		if err := json.Unmarshal(data, e); err != nil {
			return nil, beside.Broken(fmt.Errorf("an event is not a completion: %w", err))
		}
	}
	switch {
	case len(e.Error) > 0 && string(e.Error) != "null":
		return nil, overhttp.ReadComplaint(data).Ending(beside.InAnswer)
	case e.Predicted < 0 || e.Predicted == 0 && len(e.IDs) > 0:
		return nil, beside.Broken(errors.New("an event does not count the tokens of the answer"))
	}
	return e, nil
}

// scan reads an event of the usual form into an empty one. What it accepts, encoding/json would read in the
// same way; what it rejects, encoding/json has to read.
func (e *event) scan(data []byte) bool {
	s := jsonscan.New(data)
	return s.Object(func(name []byte) bool {
		switch string(name) {
		case "content":
			return s.String(&e.Text)
		case "tokens":
			return s.Uint32s(&e.IDs)
		case "tokens_predicted":
			return s.Int(&e.Predicted)
		case "tokens_evaluated":
			return s.Uint32(&e.Evaluated)
		case "stop":
			return s.Bool(&e.Stop)
		case "stop_type":
			return s.String(&e.StopType)
		case "timings":
			return jsonscan.Pointer(&s, &e.Timings, func(t *timings) bool { return t.scan(&s) })
		case "completion_probabilities": // of few requests
			return s.Value(&e.Probabilities)
		case "error":
			return s.Value(&e.Error)
		default:
			return s.Other(name)
		}
	}) && s.End()
}

func (t *timings) scan(s *jsonscan.Scanner) bool {
	return s.Object(func(name []byte) bool {
		switch string(name) {
		case "cache_n":
			return jsonscan.Pointer(s, &t.Cached, s.Uint32)
		case "prompt_n":
			return s.Uint32(&t.Read)
		default:
			return s.Other(name)
		}
	})
}

// cached returns the number of prompt tokens that the server found in its cache; nil if it does not say.
func (e *event) cached() *uint32 {
	switch {
	case e.Timings == nil:
		return nil
	case e.Timings.Cached != nil:
		return e.Timings.Cached
	default: // an older version
		return new(e.Evaluated - min(e.Evaluated, e.Timings.Read))
	}
}

// take returns the new tokens of an event, and the lost tokens before them. The count of an event is
// exact on most servers. On older ones with a draft model it is an upper bound: they count all the
// drafted tokens that they accept together before they send the first. So the text decides how many
// tokens were lost.
func (a *answer) take(e *event) ([]uint32, error) {
	if len(e.IDs) == 0 {
		if e.Text != "" {
			return nil, beside.Fail(streamerr.EngineFailed, nil, "the server does not return the ids of its tokens: it is too old for return_tokens")
		}
		return nil, nil
	}
	ids := e.IDs
	lost := e.Predicted - a.seen - len(ids)
	if lost < 0 {
		return nil, beside.Broken(fmt.Errorf("an event has %d tokens of %d, and %d had come before", len(ids), e.Predicted, a.seen))
	}
	if lost > 0 {
		found, err := a.pieces.lostIDs(e.Text, ids, lost, a.ahead)
		if err != nil {
			return nil, beside.Broken(err)
		}
		a.ahead = a.ahead || len(found) < lost
		a.likely.Unknown(found)
		ids = slices.Concat(found, ids)
	}
	a.seen += len(ids)
	if err := a.likely.Add(e.IDs, positions(e.Probabilities)); err != nil {
		return nil, beside.Broken(err)
	}
	if e.Timings != nil {
		a.ids.Found(e.cached())
	}
	return a.ids.Take(ids)
}

func positions(probabilities []probability) []likely.Position {
	all := make([]likely.Position, len(probabilities))
	for i, p := range probabilities {
		all[i].Token = likely.Token{ID: p.ID, Logprob: p.Logprob}
		for _, t := range p.Top {
			all[i].Top = append(all[i].Top, likely.Token{ID: t.ID, Logprob: t.Logprob})
		}
	}
	return all
}

package sglang

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// done is the data of the last event.
const done = "[DONE]"

// An answer is the answer of one choice so far.
type answer struct {
	Text string `json:"text"`
	Meta meta   `json:"meta_info"`
	// Index is the index of the choice, in events of a list.
	Index *int `json:"index,omitempty"`

	text strings.Builder // bounded by the model's context
}

type meta struct {
	ID               string     `json:"id"`
	Finish           *finish    `json:"finish_reason"`
	PromptTokens     uint32     `json:"prompt_tokens"` // with several prompts, each answer gets its own with its end
	CompletionTokens uint32     `json:"completion_tokens"`
	CachedTokens     uint32     `json:"cached_tokens"` // 0 if the engine does not say
	Likely           []likely   `json:"output_token_logprobs,omitempty"`
	Top              [][]likely `json:"output_top_logprobs,omitempty"`
	Latency          float64    `json:"e2e_latency,omitempty"` // in seconds, once the answer is complete
}

// A finish is the reason why an answer is complete.
type finish struct {
	Type    string `json:"type"`              // "stop", "length" or "content_filter"
	Matched any    `json:"matched,omitempty"` // the stop string, or the id of the token
	Length  uint32 `json:"length,omitempty"`
}

// likely is an array [log-probability, token id, text or null].
type likely [3]any

// answers are the choices of one stream.
type answers struct {
	g       *generate
	prompts int
	begun   time.Time
	all     []answer
}

func (g *generate) newAnswers() *answers {
	return &answers{g: g, prompts: len(g.request.GetPrompts()), begun: time.Now(), all: make([]answer, call.Choices(g.request))}
}

// start begins the answers of a stream that has started.
func (a *answers) start(s *llmv1.Started) {
	for i := range a.all {
		one := &a.all[i]
		switch {
		case a.g.ridList:
			one.Meta.ID = a.g.rids[i]
		case len(a.all) > 1:
			one.Meta.ID = s.GetStreamId() + "." + strconv.Itoa(i)
		default:
			one.Meta.ID = s.GetStreamId()
		}
		if a.prompts == 1 {
			one.Meta.PromptTokens = s.GetPromptTokens()
		}
	}
}

// add appends a delta to the answer of its choice, and returns the answer.
func (a *answers) add(d *chatv1.Delta) *answer {
	one := &a.all[d.GetChoice()]
	one.text.WriteString(d.GetText())
	one.Text = one.text.String()
	one.Meta.CompletionTokens += d.GetTokens()
	for _, token := range d.GetLogprobs() {
		one.Meta.Likely = append(one.Meta.Likely, a.likely(token))
		if a.g.top > 0 {
			top := make([]likely, len(token.GetTop()))
			for i, t := range token.GetTop() {
				top[i] = a.likely(t)
			}
			one.Meta.Top = append(one.Meta.Top, top)
		}
	}
	return one
}

func (a *answers) likely(t *chatv1.TokenLogprob) likely {
	l := likely{t.GetLogprob(), t.GetId(), nil}
	if a.g.withText {
		l[2] = t.GetToken()
	}
	return l
}

// restart discards the text of an answer that is restarted.
func (a *answers) restart(choice uint32) {
	one := &a.all[choice]
	one.text.Reset()
	one.Text, one.Meta.CompletionTokens, one.Meta.Likely, one.Meta.Top = "", 0, nil, nil
}

// end completes an answer.
func (a *answers) end(end *chatv1.ChoiceEnd) *answer {
	one := &a.all[end.GetChoice()]
	m := &one.Meta
	m.PromptTokens, m.CompletionTokens, m.CachedTokens = end.GetUsage().GetPromptTokens(), end.GetUsage().GetCompletionTokens(), end.GetUsage().GetCachedTokens()
	m.Latency = time.Since(a.begun).Seconds()
	switch {
	case end.GetFinish() == llmv1.Finish_FINISH_LENGTH:
		m.Finish = &finish{Type: "length", Length: m.CompletionTokens}
	case end.GetFinish() == llmv1.Finish_FINISH_CONTENT_FILTER:
		m.Finish = &finish{Type: "content_filter"}
	case end.GetMatchedStop() != "":
		m.Finish = &finish{Type: "stop", Matched: end.GetMatchedStop()}
	case end.MatchedToken != nil:
		m.Finish = &finish{Type: "stop", Matched: end.GetMatchedToken()}
	default:
		m.Finish = &finish{Type: "stop"}
	}
	return one
}

// lone returns the end of the only choice of a stream.
func lone(end *llmv1.End) *chatv1.ChoiceEnd {
	return &chatv1.ChoiceEnd{Finish: end.GetFinish(), MatchedStop: end.GetMatchedStop(), MatchedToken: end.MatchedToken, Usage: end.GetUsage()}
}

// events encodes, for each piece, the whole answer of its choice so far.
func (g *generate) events() call.Writer {
	a := g.newAnswers()
	return func(out *chatv1.GenerateResponse, lines call.Lines) {
		write := func(choice uint32, one *answer) {
			if g.batch {
				one.Index = new(int(choice))
			}
			lines.End(append(lines.Begin(), marshal(one)...))
		}
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			a.start(m.Started)
		case *chatv1.GenerateResponse_Delta:
			write(m.Delta.GetChoice(), a.add(m.Delta))
		case *chatv1.GenerateResponse_ChoiceEnd:
			write(m.ChoiceEnd.GetChoice(), a.end(m.ChoiceEnd))
		case *chatv1.GenerateResponse_End:
			if len(a.all) == 1 {
				write(0, a.end(lone(m.End)))
			}
			call.Answered(lines)
			lines.End(append(lines.Begin(), done...))
		}
	}
}

// whole encodes the answer, or the list of answers in the order of their prompts.
func (g *generate) whole() call.Gatherer {
	a := g.newAnswers()
	return func(out *chatv1.GenerateResponse) []byte {
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			a.start(m.Started)
		case *chatv1.GenerateResponse_Delta:
			a.add(m.Delta)
		case *chatv1.GenerateResponse_Restarted:
			a.restart(m.Restarted.GetChoice())
		case *chatv1.GenerateResponse_ChoiceEnd:
			a.end(m.ChoiceEnd)
		case *chatv1.GenerateResponse_End:
			if len(a.all) == 1 {
				a.end(lone(m.End))
			}
			if g.batch {
				all := make([]*answer, len(a.all)) // pointers: an answer must not be copied
				for i := range a.all {
					all[i] = &a.all[i]
				}
				return marshal(all)
			}
			return marshal(&a.all[0])
		}
		return nil
	}
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: structs of strings and numbers
	}
	return b
}

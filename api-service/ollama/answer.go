package ollama

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/jsontext"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/answer"
)

// A piece is a part of an answer, or all of it.
type piece struct {
	text, reasoning string
	calls           []*chatv1.ToolCall
	tokens          []*chatv1.TokenLogprob
}

// An encoder encodes the answer to a body, and measures the times that the last line has.
type encoder struct {
	body     *body
	begun    time.Time
	admitted time.Time // begun before
	first    time.Time // when the first token came; zero before

	open *answer.Answer // the tool call of a stream that is not complete; nil if there is none
	made int            // encoded tool calls
}

func (b *body) newEncoder() *encoder {
	now := time.Now()
	return &encoder{body: b, begun: now, admitted: now}
}

// record records the time of an item.
func (e *encoder) record(out *chatv1.GenerateResponse) {
	switch {
	case out.GetStarted() != nil:
		e.admitted = time.Now()
	case out.GetDelta() != nil && e.first.IsZero():
		e.first = time.Now()
	}
}

// append appends a line up to the member done.
func (e *encoder) append(b []byte, p piece) []byte {
	b = jsontext.String(append(b, `{"model":`...), e.body.model)
	b = time.Now().UTC().AppendFormat(append(b, `,"created_at":"`...), time.RFC3339Nano)
	end := ""
	if e.body.generates {
		b = append(b, `","response":`...)
	} else {
		b, end = append(b, `","message":{"role":"assistant","content":`...), "}"
	}
	b = jsontext.String(b, p.text)
	if p.reasoning != "" {
		b = jsontext.String(append(b, `,"thinking":`...), p.reasoning)
	}
	if len(p.calls) > 0 {
		b = append(append(b, `,"tool_calls":`...), marshal(callsOf(p.calls, e.made))...)
		e.made += len(p.calls)
	}
	b = append(b, end...)
	if len(p.tokens) > 0 {
		b = append(append(b, `,"logprobs":`...), marshal(logprobsOf(p.tokens))...)
	}
	return b
}

// end appends the rest of the last line.
func (e *encoder) end(b []byte, end *llmv1.End) []byte {
	now := time.Now()
	first := e.first
	if first.IsZero() {
		first = now
	}
	b = append(append(append(b, `,"done":true,"done_reason":"`...), reasonOf(end.GetFinish())...), '"')
	for _, m := range []struct {
		name  string
		value int64
	}{
		{"total_duration", now.Sub(e.begun).Nanoseconds()},
		{"load_duration", e.admitted.Sub(e.begun).Nanoseconds()},
		{"prompt_eval_count", int64(end.GetUsage().GetPromptTokens())},
		{"prompt_eval_duration", first.Sub(e.admitted).Nanoseconds()},
		{"eval_count", int64(end.GetUsage().GetCompletionTokens())},
		{"eval_duration", now.Sub(first).Nanoseconds()},
	} {
		b = append(append(append(b, `,"`...), m.name...), `":`...)
		b = strconv.AppendInt(b, m.value, 10)
	}
	if end.GetUsage().GetEstimated() { // the counts, because the server that generates has not reported them
		b = append(b, `,"estimated":true`...)
	}
	return append(b, '}')
}

// reasonOf returns the done_reason of a complete answer. As in Ollama's API, it is "stop" for an
// answer that calls tools.
func reasonOf(finish llmv1.Finish) string {
	switch finish {
	case llmv1.Finish_FINISH_LENGTH:
		return "length"
	case llmv1.Finish_FINISH_CONTENT_FILTER:
		return "content_filter"
	default:
		return "stop"
	}
}

// events encodes the answer as lines. A tool call is one line, once it is complete.
func (b *body) events() call.Writer {
	e := b.newEncoder()
	return func(out *chatv1.GenerateResponse, lines call.Lines) {
		e.record(out)
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Delta:
			e.delta(m.Delta, lines)
		case *chatv1.GenerateResponse_End:
			e.closeCall(lines)
			lines.End(e.end(e.append(lines.Begin(), piece{}), m.End))
			call.Answered(lines)
		}
	}
}

// delta encodes a delta, which may be several merged deltas. Its first parts of tool calls may
// continue the open call, so they come before its text.
func (e *encoder) delta(d *chatv1.Delta, lines call.Lines) {
	calls := d.GetToolCalls()
	for len(calls) > 0 && calls[0].GetId() == "" {
		e.addCall(calls[0])
		calls = calls[1:]
	}
	if p := (piece{text: d.GetText(), reasoning: d.GetReasoning(), tokens: d.GetLogprobs()}); p.text != "" || p.reasoning != "" || len(p.tokens) > 0 {
		if p.text != "" || p.reasoning != "" {
			e.closeCall(lines)
		}
		e.line(p, lines)
	}
	for _, c := range calls {
		if c.GetId() != "" {
			e.closeCall(lines)
			e.open = &answer.Answer{}
		}
		e.addCall(c)
	}
}

// addCall adds a part of a tool call to the open call.
func (e *encoder) addCall(c *chatv1.ToolCallDelta) {
	if e.open != nil {
		e.open.Add(&chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Id: c.GetId(), Name: c.GetName(), Arguments: c.GetArguments()}}})
	}
}

// closeCall encodes the open call, if there is one.
func (e *encoder) closeCall(lines call.Lines) {
	if e.open != nil {
		e.line(piece{calls: e.open.Calls()}, lines)
		e.open = nil
	}
}

func (e *encoder) line(p piece, lines call.Lines) {
	lines.End(append(e.append(lines.Begin(), p), `,"done":false}`...))
}

// whole encodes the answer as one body.
func (b *body) whole() call.Gatherer {
	e := b.newEncoder()
	e.first = e.begun // all items may come at the end, so all of the time counts as the answer's
	return call.Gather(b.request, func(_ *llmv1.Started, all []call.Choice, end *llmv1.End) []byte {
		got := &all[0]
		return e.end(e.append(nil, piece{got.Text(), got.Reasoning(), got.Calls(), got.Tokens}), end)
	})
}

// loaded returns the answer to a body without a prompt, which asks to load the model or to unload
// it.
func (b *body) loaded() []byte {
	reason := "load"
	if b.unloads {
		reason = "unload"
	}
	line := b.newEncoder().append(nil, piece{})
	return append(line, `,"done":true,"done_reason":"`+reason+`"}`...)
}

type toolCall struct {
	ID       string `json:"id"`
	Function struct {
		Index     int             `json:"index"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// callsOf returns tool calls, the first of which has a number.
func callsOf(all []*chatv1.ToolCall, number int) []toolCall {
	calls := make([]toolCall, len(all))
	for i, made := range all {
		c := &calls[i]
		c.ID, c.Function.Index, c.Function.Name, c.Function.Arguments = made.GetId(), number+i, made.GetName(), argumentsOf(made.GetArguments())
	}
	return calls
}

// invalidArguments is the member that holds arguments that are not a JSON object.
const invalidArguments = "INVALID_JSON"

// argumentsOf returns the arguments of a call as an object in one line. A model may be cut off in
// the middle of the arguments, and a model that is not guided may write anything.
func argumentsOf(text string) json.RawMessage {
	var line bytes.Buffer
	arguments := bytes.TrimSpace([]byte(text))
	switch {
	case len(arguments) == 0:
		return json.RawMessage("{}")
	case arguments[0] != '{' || json.Compact(&line, arguments) != nil:
		return marshal(map[string]string{invalidArguments: text})
	default:
		return line.Bytes()
	}
}

type logprob struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes,omitempty"`
}

type tokenLogprob struct {
	logprob
	Top []logprob `json:"top_logprobs,omitempty"`
}

func logprobsOf(tokens []*chatv1.TokenLogprob) []tokenLogprob {
	all := make([]tokenLogprob, len(tokens))
	for i, t := range tokens {
		all[i].logprob = likelyOf(t)
		for _, top := range t.GetTop() {
			all[i].Top = append(all[i].Top, likelyOf(top))
		}
	}
	return all
}

func likelyOf(t *chatv1.TokenLogprob) logprob {
	l := logprob{Token: t.GetToken(), Logprob: t.GetLogprob()}
	for _, b := range t.GetBytes() {
		l.Bytes = append(l.Bytes, int(b))
	}
	return l
}

package responses

import (
	"cmp"
	"strconv"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/jsontext"
	"github.com/whence-dev/whence/api-service/openai"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An Encoder encodes the answer of one request, as events or as one body. One goroutine uses it.
type Encoder struct {
	output
	request  *chatv1.ChatRequest
	repeated []byte           // what the response repeats of its request
	endedAt  func() time.Time // called once the stream has ended

	stores  bool // the response is stored, or will be
	model   string
	created int64  // in seconds since 1970; 0 before the stream has started, unless the response is stored
	status  status // of the response
	result  result // zero until the response has ended
	last    string // name of the last event
	sequence
	from int64 // events with a smaller number are left out

	lines   call.Lines
	scratch []byte // takes the events that are left out
	leaves  bool   // the current event is left out
}

// events encodes the answer as the events response.created and response.in_progress; for each item
// response.output_item.added, those of its content, and response.output_item.done; then
// response.completed or response.incomplete.
func (e *Encoder) events() call.Writer {
	e.to = e
	return e.Write
}

// Write encodes the events of the next item of the stream.
func (e *Encoder) Write(out *chatv1.GenerateResponse, lines call.Lines) {
	e.lines = lines
	switch m := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		if e.status != queued {
			return // another instance has taken the stream over
		}
		e.start(m.Started)
		e.announce("response.created")
		e.announce("response.in_progress")
	case *chatv1.GenerateResponse_Delta:
		e.add(m.Delta)
	case *chatv1.GenerateResponse_End:
		with, r := resultOf(m.End, e.endedAt)
		e.output.end(with)
		call.Answered(lines)
		ending := streamerr.Error{Reason: streamerr.Completed, Path: streamerr.NewPath(m.End.GetPath()...)}
		e.finish("response."+string(with), with, r, ending.Extension())
	}
}

// whole encodes the answer as one body.
func (e *Encoder) whole() call.Gatherer {
	return func(out *chatv1.GenerateResponse) []byte {
		switch m := out.GetMessage().(type) {
		case *chatv1.GenerateResponse_Started:
			e.start(m.Started)
		case *chatv1.GenerateResponse_Delta:
			e.add(m.Delta)
		case *chatv1.GenerateResponse_Restarted:
			e.output = output{stream: e.stream, encrypts: e.encrypts, functions: e.functions}
		case *chatv1.GenerateResponse_End:
			e.status, e.result = resultOf(m.End, e.endedAt)
			e.output.end(e.status)
			return e.AppendResponse(nil)
		}
		return nil
	}
}

func (e *Encoder) start(s *llmv1.Started) {
	e.stream, e.model, e.status = cmp.Or(e.stream, s.GetStreamId()), s.GetModel(), inProgress
	if e.created == 0 {
		e.created = time.Now().Unix()
	}
}

// announce encodes an event that has the whole response while it is in progress.
func (e *Encoder) announce(name string) {
	e.end(append(e.AppendResponse(append(e.begin(name), `,"response":`...)), '}'))
}

// done returns the name of the last event.
func (e *Encoder) done() string { return e.last }

// begin begins an event. end ends an event with the closing brace, which the caller has appended.
func (e *Encoder) begin(name string) []byte {
	number := e.Add()
	b := e.scratch[:0]
	if e.leaves = number < e.from; !e.leaves {
		b = e.lines.BeginEvent(name)
	}
	b = append(append(append(b, `{"type":"`...), name...), `","sequence_number":`...)
	b = strconv.AppendInt(b, number, 10)
	return b
}

func (e *Encoder) end(line []byte) {
	if e.leaves {
		e.scratch = line
		return
	}
	e.lines.End(line)
}

// finish encodes the last event: the whole response, and the ending of the stream beside it.
func (e *Encoder) finish(name string, with status, r result, ending streamerr.Extension) {
	e.last, e.status, e.result = name, with, r
	b := e.AppendResponse(append(e.begin(name), `,"response":`...))
	e.end(append(append(append(b, `,"whence":`...), marshal(ending)...), '}'))
}

// ofItem begins an event about an item's content.
func (e *Encoder) ofItem(name string, it *item) []byte {
	b := append(append(e.begin(name), `,"item_id":`...), it.id...)
	b = strconv.AppendInt(append(b, `,"output_index":`...), int64(it.index), 10)
	if !it.kind.calls() {
		b = append(b, `,"content_index":0`...)
	}
	return b
}

// aboutItem encodes an event that has a whole item.
func (e *Encoder) aboutItem(name string, it *item) {
	b := strconv.AppendInt(append(e.begin(name), `,"output_index":`...), int64(it.index), 10)
	e.end(append(it.append(append(b, `,"item":`...)), '}'))
}

func (e *Encoder) opened(it *item) {
	e.aboutItem("response.output_item.added", it)
	if !it.kind.calls() {
		e.end(append(it.appendPart(append(e.ofItem("response.content_part.added", it), `,"part":`...)), '}'))
	}
}

// contents are the names of the events about an item's content, without the last word.
var contents = map[itemKind]string{
	message: "response.output_text.", reasoning: "response.reasoning_text.",
	functionCall: "response.function_call_arguments.", customCall: "response.custom_tool_call_input.",
}

// deltas are the names of the events for tokens, made once so that a token allocates no name.
var deltas = map[itemKind]string{
	message: contents[message] + "delta", reasoning: contents[reasoning] + "delta",
	functionCall: contents[functionCall] + "delta", customCall: contents[customCall] + "delta",
}

func (e *Encoder) grew(it *item, piece string, tokens []openai.TokenLogprob) {
	if it.kind == searchCall {
		return // comes as a whole
	}
	b := jsontext.String(append(e.ofItem(deltas[it.kind], it), `,"delta":`...), piece)
	if it.kind == message {
		b = appendLogprobs(append(b, `,"logprobs":`...), tokens)
	}
	e.end(append(b, '}'))
}

// closed encodes the end of an item. Arguments of a call that was cut off get no done event.
func (e *Encoder) closed(it *item) {
	switch it.kind {
	case searchCall:
	case functionCall, customCall:
		if it.status == completed {
			b := jsontext.String(append(e.ofItem(contents[it.kind]+"done", it), `,"name":`...), it.function.Name)
			b = append(append(append(b, ',', '"'), payload[it.kind]...), '"', ':')
			e.end(append(jsontext.String(b, it.text.String()), '}'))
		}
	default:
		b := jsontext.String(append(e.ofItem(contents[it.kind]+"done", it), `,"text":`...), it.text.String())
		if it.kind == message {
			b = appendLogprobs(append(b, `,"logprobs":`...), it.logprobs)
		}
		e.end(append(b, '}'))
		e.end(append(it.appendPart(append(e.ofItem("response.content_part.done", it), `,"part":`...)), '}'))
	}
	e.aboutItem("response.output_item.done", it)
}

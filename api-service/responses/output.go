package responses

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/customtool"
	"github.com/whence-dev/whence/api-service/jsontext"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/responses/conversation"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// An itemKind is the type of an item of an answer.
type itemKind string

const (
	message      itemKind = "message"
	reasoning    itemKind = "reasoning"
	functionCall itemKind = "function_call"
	customCall   itemKind = "custom_tool_call"
	searchCall   itemKind = "tool_search_call"
)

// payload names the member that has the content of a call.
var payload = map[itemKind]string{functionCall: "arguments", customCall: "input"}

// prefixes begin the ids of items.
var prefixes = map[itemKind]string{message: "msg_", reasoning: "rs_", functionCall: "fc_", customCall: "ctc_", searchCall: "tsc_"}

// itemID matches the id of an item that an output has made, or that a list of input items has made.
var itemID = regexp.MustCompile(`^(?:msg|rs|fc|ctc|tsc|item)_(.+)_\d+$`)

// OfItem returns the id of the response that an item belongs to by its id, or "".
func OfItem(id string) string {
	if of := itemID.FindStringSubmatch(id); of != nil {
		return IDPrefix + of[1]
	}
	return ""
}

// calls reports whether an item is a call.
func (k itemKind) calls() bool { return k == functionCall || k == customCall || k == searchCall }

// A status is the status of a response or of an item.
type status string

const (
	queued     status = "queued"
	inProgress status = "in_progress"
	completed  status = "completed"
	incomplete status = "incomplete"
	failed     status = "failed"
	cancelled  status = "cancelled"
)

// An item is a part of an answer. The model's context bounds its size.
type item struct {
	kind     itemKind
	id       []byte // as JSON
	index    int    // in the output
	status   status
	text     strings.Builder // of a message, of reasoning, or the arguments or the input of a call
	logprobs []openai.TokenLogprob
	call     *chatv1.ToolCallDelta // the first piece of a call
	function function              // the called function
	custom   customtool.Input      // of the call of a custom tool
	encrypts bool                  // reasoning has an encrypted_content
}

// A listener receives the changes of an output.
type listener interface {
	opened(*item)
	grew(it *item, piece string, tokens []openai.TokenLogprob)
	closed(*item)
}

// An output collects the items of an answer. At most one item is open at a time: a delta of another
// kind closes the open item and opens the next.
type output struct {
	stream   string // id of the stream, from which the ids of the items are made
	encrypts bool
	// functions are the custom tools, those of namespaces and the tool search, by the names that the
	// model knows.
	functions map[string]function
	to        listener // nil means none
	items     []*item
	open      *item // nil means none
	called    bool  // the answer has a call

	// White space before a message, and its tokens. White space alone opens no message, because
	// models write it between calls. The model's context bounds its size.
	space  []byte
	tokens []openai.TokenLogprob
}

// add adds a delta, which may be several merged deltas. Its first calls may continue the open item,
// so they come before its text; earlier text would have closed the item. Log-probabilities belong
// to the text: reasoning and calls have none in this API.
func (o *output) add(d *chatv1.Delta) {
	calls := d.GetToolCalls()
	for len(calls) > 0 && calls[0].GetId() == "" {
		o.arguments(calls[0])
		calls = calls[1:]
	}
	if d.GetReasoning() != "" {
		o.grow(o.into(reasoning), d.GetReasoning(), nil)
	}
	o.addText(d)
	for _, c := range calls {
		if c.GetId() != "" {
			o.close(completed)
			o.begin(functionCall, c)
			o.called, o.space, o.tokens = true, nil, nil
		}
		o.arguments(c)
	}
}

// arguments adds a piece of the arguments of the open call. chat-service sends the pieces of one
// call in order, and before those of the next call.
func (o *output) arguments(c *chatv1.ToolCallDelta) {
	if c.GetArguments() == "" || o.open == nil || !o.open.kind.calls() || o.open.call.GetIndex() != c.GetIndex() {
		return
	}
	piece := c.GetArguments()
	if o.open.kind == customCall {
		piece = o.open.custom.Add(piece)
	}
	if piece != "" {
		o.grow(o.open, piece, nil)
	}
}

// addText adds the text of a delta.
func (o *output) addText(d *chatv1.Delta) {
	inMessage := o.open != nil && o.open.kind == message
	var tokens []openai.TokenLogprob
	if probabilities := openai.NewLogprobs(d.GetLogprobs()); probabilities != nil {
		tokens = probabilities.Content
	}
	switch {
	case d.GetText() == "" && (!inMessage || len(tokens) == 0):
	case !inMessage && strings.TrimSpace(d.GetText()) == "":
		o.space, o.tokens = append(o.space, d.GetText()...), append(o.tokens, tokens...)
	case len(o.space) > 0:
		text, tokens := string(o.space)+d.GetText(), append(o.tokens, tokens...)
		o.space, o.tokens = nil, nil
		o.grow(o.into(message), text, tokens)
	default:
		o.grow(o.into(message), d.GetText(), tokens)
	}
}

// into returns the open item of kind, which is not a call. If another item is open, into closes
// that and opens a new item.
func (o *output) into(kind itemKind) *item {
	if o.open == nil || o.open.kind != kind {
		o.close(completed)
		o.begin(kind, nil)
	}
	return o.open
}

func (o *output) begin(kind itemKind, call *chatv1.ToolCallDelta) {
	index := len(o.items)
	named, renamed := o.functions[call.GetName()]
	switch {
	case named.Custom:
		kind = customCall
	case named.Search:
		kind = searchCall
	}
	id := jsontext.String(nil, prefixes[kind]+o.stream+"_"+strconv.Itoa(index))
	o.open = &item{kind: kind, id: id, index: index, status: inProgress, call: call, encrypts: o.encrypts}
	o.open.function = named
	if !renamed {
		o.open.function.Name = call.GetName()
	}
	o.items = append(o.items, o.open)
	if o.to != nil {
		o.to.opened(o.open)
	}
}

func (o *output) grow(it *item, piece string, tokens []openai.TokenLogprob) {
	it.text.WriteString(piece)
	it.logprobs = append(it.logprobs, tokens...)
	if o.to != nil {
		o.to.grew(it, piece, tokens)
	}
}

// close closes the open item, if there is one.
func (o *output) close(with status) {
	it := o.open
	if it == nil {
		return
	}
	switch {
	case with != completed:
	case it.kind == functionCall && strings.TrimSpace(it.text.String()) == "":
		o.grow(it, "{}", nil) // a call without arguments
	case it.kind == customCall:
		if rest := it.custom.End(); rest != "" {
			o.grow(it, rest, nil)
		}
	}
	it.status, o.open = with, nil
	if o.to != nil {
		o.to.closed(it)
	}
}

// end ends the answer. with is the status of the open item.
func (o *output) end(with status) {
	if len(o.space) > 0 && !o.called { // otherwise the answer is more than white space
		text, tokens := string(o.space), o.tokens
		o.space, o.tokens = nil, nil
		o.grow(o.into(message), text, tokens)
	}
	o.close(with)
}

// merged returns when the stream began, and one delta for each item of the answer so far. The same
// answer follows from these deltas.
func (e *Encoder) merged() (began time.Time, all []*chatv1.GenerateResponse) {
	all = append(all, &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{StreamId: e.stream, Model: e.model}}})
	add := func(d *chatv1.Delta) {
		all = append(all, &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: d}})
	}
	for _, it := range e.items {
		switch text := it.text.String(); it.kind {
		case reasoning:
			add(&chatv1.Delta{Reasoning: text})
		case message:
			add(&chatv1.Delta{Text: text, Logprobs: openai.ParseLogprobs(it.logprobs)})
		case customCall:
			text = it.custom.Arguments()
			fallthrough
		default:
			add(&chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Index: it.call.GetIndex(), Id: it.call.GetId(), Name: it.call.GetName(), Arguments: text}}})
		}
	}
	if len(e.space) > 0 {
		add(&chatv1.Delta{Text: string(e.space), Logprobs: openai.ParseLogprobs(e.tokens)})
	}
	return time.Unix(e.created, 0), all
}

// AppendItems appends the items as JSON.
func (o *output) AppendItems(b []byte) []byte {
	b = append(b, '[')
	for i, it := range o.items {
		if i > 0 {
			b = append(b, ',')
		}
		b = it.append(b)
	}
	return append(b, ']')
}

// append appends an item as JSON. An item that has just been opened has no content.
func (it *item) append(b []byte) []byte {
	b = append(append(b, `{"id":`...), it.id...)
	b = append(append(append(b, `,"type":"`...), it.kind...), `","status":"`...)
	b = append(append(b, it.status...), '"')
	switch it.kind {
	case functionCall, customCall:
		b = jsontext.String(append(append(append(b, ',', '"'), payload[it.kind]...), '"', ':'), it.text.String())
		b = jsontext.String(append(b, `,"call_id":`...), it.call.GetId())
		b = jsontext.String(append(b, `,"name":`...), it.function.Name)
		if it.function.Namespace != "" {
			b = jsontext.String(append(b, `,"namespace":`...), it.function.Namespace)
		}
		return append(b, '}')
	case searchCall:
		b = append(append(b, `,"arguments":`...), it.searched()...)
		return append(jsontext.String(append(b, `,"execution":"client","call_id":`...), it.call.GetId()), '}')
	case reasoning:
		b = append(b, `,"summary":[],"content":[`...)
	default:
		b = append(b, `,"role":"assistant","content":[`...)
	}
	if it.text.Len() > 0 {
		b = it.appendPart(b)
	}
	b = append(b, ']')
	if it.encrypts && it.kind == reasoning && it.status != inProgress {
		b = jsontext.String(append(b, `,"encrypted_content":`...), conversation.Encrypt(it.text.String()))
	}
	return append(b, '}')
}

// searched returns the arguments of a tool search, which are an object in this API, or any value that a
// model has written instead.
func (it *item) searched() []byte {
	switch text := strings.TrimSpace(it.text.String()); {
	case text == "" || it.status == inProgress:
		return []byte("{}")
	case json.Valid([]byte(text)):
		return []byte(text)
	default:
		return marshal(text)
	}
}

// appendPart appends the one part of an item's content.
func (it *item) appendPart(b []byte) []byte {
	if it.kind == reasoning {
		return append(jsontext.String(append(b, `{"type":"reasoning_text","text":`...), it.text.String()), '}')
	}
	b = jsontext.String(append(b, `{"type":"output_text","text":`...), it.text.String())
	b = append(b, `,"annotations":[],"logprobs":`...)
	return append(appendLogprobs(b, it.logprobs), '}')
}

func appendLogprobs(b []byte, tokens []openai.TokenLogprob) []byte {
	if len(tokens) == 0 {
		return append(b, '[', ']')
	}
	return append(b, marshal(tokens)...)
}

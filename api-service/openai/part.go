package openai

import (
	"strconv"

	"github.com/whence-dev/whence/api-service/jsontext"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// appendPart appends the delta of a chunk.
func appendPart(b []byte, d *chatv1.Delta) []byte {
	if d.GetReasoning() == "" && len(d.GetToolCalls()) == 0 {
		return append(jsontext.String(append(b, `{"content":`...), d.GetText()), '}')
	}
	b = append(b, '{')
	if d.GetReasoning() != "" {
		b = append(b, `"reasoning_content":`...)
		b = append(jsontext.String(b, d.GetReasoning()), ',')
	}
	if d.GetText() != "" {
		b = append(b, `"content":`...)
		b = append(jsontext.String(b, d.GetText()), ',')
	}
	if len(d.GetToolCalls()) > 0 {
		b = append(b, `"tool_calls":[`...)
		for _, piece := range d.GetToolCalls() {
			b = append(appendCall(b, piece), ',')
		}
		b[len(b)-1] = ']'
		b = append(b, ',')
	}
	b[len(b)-1] = '}'
	return b
}

// appendCall appends a piece of a call. The first piece has id, type and name; SDKs require
// arguments there, too.
func appendCall(b []byte, piece *chatv1.ToolCallDelta) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendUint(b, uint64(piece.GetIndex()), 10)
	if piece.GetId() != "" {
		b = append(b, `,"id":`...)
		b = jsontext.String(b, piece.GetId())
		b = append(b, `,"type":"function"`...)
	}
	b = append(b, `,"function":{`...)
	if piece.GetName() != "" {
		b = append(b, `"name":`...)
		b = append(jsontext.String(b, piece.GetName()), ',')
	}
	b = append(b, `"arguments":`...)
	return append(jsontext.String(b, piece.GetArguments()), '}', '}')
}

// A toolCall is a tool call of an answer that is not streamed.
type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func toolCallsOf(calls []*chatv1.ToolCall) (list []toolCall) {
	for _, call := range calls {
		list = append(list, toolCall{call.GetId(), "function", functionCall{call.GetName(), call.GetArguments()}})
	}
	return list
}

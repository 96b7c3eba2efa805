package follow

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/whence-dev/whence/api-service/jsontext"
)

// A part is the data of a delta: text, reasoning, and pieces of tool calls.
type part struct {
	Text      string     `json:"text"`
	Reasoning string     `json:"reasoning,omitempty"`
	Calls     []callPart `json:"calls,omitempty"`
}

// A callPart is a piece of a tool call. The first piece of a call has its id and name.
type callPart struct {
	Index     uint32 `json:"index"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// fence is the byte before and after a delta with more than text. No text contains it.
const fence byte = 0xfe

// appendMembers appends the members of the JSON object of a part.
func (p *part) appendMembers(b []byte) []byte {
	b = jsontext.String(append(b, `"text":`...), p.Text)
	if p.Reasoning != "" {
		b = jsontext.String(append(b, `,"reasoning":`...), p.Reasoning)
	}
	if len(p.Calls) == 0 {
		return b
	}
	b = append(b, `,"calls":[`...)
	for i, c := range p.Calls {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(append(b, `{"index":`...), uint64(c.Index), 10)
		if c.ID != "" {
			b = jsontext.String(append(b, `,"id":`...), c.ID)
		}
		if c.Name != "" {
			b = jsontext.String(append(b, `,"name":`...), c.Name)
		}
		b = append(jsontext.String(append(b, `,"arguments":`...), c.Arguments), '}')
	}
	return append(b, ']')
}

// appendParts appends the JSON object of deltas that the log has merged.
func appendParts(b []byte, data string) []byte {
	first := strings.IndexByte(data, fence)
	switch {
	case first < 0: // only text
		b = append(append(b, `{"text":"`...), data...)
		return append(b, `"}`...)
	case first == 0 && strings.IndexByte(data[1:], fence) == len(data)-2: // a single delta
		return append(b, data[1:len(data)-1]...)
	}
	var all part
	var reasoning strings.Builder
	b = append(b, `{"text":"`...)
	for i, piece := range strings.Split(data, string([]byte{fence})) {
		var p part
		if i%2 == 0 {
			b = append(b, piece...)
		} else if json.Unmarshal([]byte(piece), &p) == nil { // cannot fail: a Recorder has written the object
			b = jsontext.Text(b, p.Text)
			reasoning.WriteString(p.Reasoning)
			for _, c := range p.Calls {
				all.call(c)
			}
		}
	}
	all.Reasoning = reasoning.String()
	b = append(b, '"')
	// The joined text is in b already, so only the other members are appended.
	return append(append(b, all.appendMembers(nil)[len(`"text":""`):]...), '}')
}

// add adds the part of the next delta.
func (p *part) add(next part) {
	p.Text += next.Text
	p.Reasoning += next.Reasoning
	for _, c := range next.Calls {
		p.call(c)
	}
}

// call appends a piece of a call to the previous piece, if both belong to the same call.
func (p *part) call(c callPart) {
	if n := len(p.Calls); n > 0 && p.Calls[n-1].Index == c.Index {
		p.Calls[n-1].Arguments += c.Arguments
		return
	}
	p.Calls = append(p.Calls, c)
}

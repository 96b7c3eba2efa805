package follow

import (
	"encoding/json"
	"strings"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// A part is what a reader gets of an answer at once: text, what the model thinks, and pieces of calls.
type part struct {
	Text      string     `json:"text"`
	Reasoning string     `json:"reasoning,omitempty"`
	Calls     []callPart `json:"calls,omitempty"`
}

// A callPart is a piece of a call, of which the first has id and name.
type callPart struct {
	Index     uint32 `json:"index"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// fence stands before and behind what is no text, where the log joins it with text: a byte that no text has.
const fence = "\xfe"

// kept is a delta as the log has it. Most are text alone.
func kept(d *chatv1.Delta) string {
	if d.GetReasoning() == "" && len(d.GetToolCalls()) == 0 {
		return d.GetText()
	}
	p := partOf(d)
	p.Text = ""
	return d.GetText() + fence + string(marshal(p)) + fence
}

func partOf(d *chatv1.Delta) part {
	p := part{Text: d.GetText(), Reasoning: d.GetReasoning()}
	for _, c := range d.GetToolCalls() {
		p.Calls = append(p.Calls, callPart{c.GetIndex(), c.GetId(), c.GetName(), c.GetArguments()})
	}
	return p
}

// joined is what several deltas of the log come to.
func joined(data string) part {
	var all part
	var text, reasoning strings.Builder
	for i, piece := range strings.Split(data, fence) {
		var p part
		if i%2 == 0 {
			text.WriteString(piece)
		} else if json.Unmarshal([]byte(piece), &p) == nil { // it is ours
			reasoning.WriteString(p.Reasoning)
			for _, c := range p.Calls {
				all.call(c)
			}
		}
	}
	all.Text, all.Reasoning = text.String(), reasoning.String()
	return all
}

// add adds what comes next.
func (p *part) add(next part) {
	p.Text += next.Text
	p.Reasoning += next.Reasoning
	for _, c := range next.Calls {
		p.call(c)
	}
}

// call adds a piece to that of the same call.
func (p *part) call(c callPart) {
	if n := len(p.Calls); n > 0 && p.Calls[n-1].Index == c.Index {
		p.Calls[n-1].Arguments += c.Arguments
		return
	}
	p.Calls = append(p.Calls, c)
}

package toolcall

import (
	"regexp"
	"strings"
)

const (
	mistralOpen = "[TOOL_CALLS]"
	mistralArgs = "[ARGS]"
	mistralID   = "[CALL_ID]"
)

// The formats of Mistral's models. All are read alike: a list, or names with arguments, after a
// marker.
var (
	// Mistral is the format of Mistral's first models with tools: a list.
	Mistral = mistral("mistral", `\[TOOL_CALLS\]`, func(tool string) (string, string) { return mistralOpen + listed(tool), "}]" })
	// MistralArgs is the format of Devstral, Magistral and Ministral 3: a name with arguments.
	MistralArgs = mistral("mistral-args", `\[ARGS\]`, func(tool string) (string, string) { return mistralOpen + tool + mistralArgs, "" })
	// MistralIDs is the format of Mistral Small 3.2, whose calls also have ids.
	MistralIDs = mistral("mistral-ids", `\[CALL_ID\]`, func(tool string) (string, string) {
		return mistralOpen + tool + mistralID + shortID() + mistralArgs, ""
	})
)

func mistral(name, detect string, around func(tool string) (before, after string)) *Format {
	return &Format{
		Name: name, Markers: []string{mistralOpen, mistralArgs, mistralID}, begin: mistralText, opens: []string{mistralOpen}, id: shortID,
		detect: regexp.MustCompile(detect), around: around,
	}
}

// mistralForm matches the ids that templates of Mistral accept.
var mistralForm = regexp.MustCompile("^[a-zA-Z0-9]{9}$")

func mistralText(p *Parser) bool {
	if p.until(mistralOpen) < 0 {
		return false
	}
	p.state = mistralHead
	return true
}

// mistralHead follows the marker. It expects a list of objects, or a name.
func mistralHead(p *Parser) bool {
	if !p.skipSpace() {
		return false
	}
	switch {
	case p.buf[0] == '[':
		p.consume(1)
		p.state = mistralItem
	case strings.Contains(space, p.buf[:1]): // longer than the head of a call may be
		return p.backToText(mistralText)
	default:
		p.state = mistralName
	}
	return true
}

// mistralItem expects an object of the list.
func mistralItem(p *Parser) bool {
	if !p.skipSpace() {
		return false
	}
	if p.buf[0] != '{' {
		return p.backToText(mistralText)
	}
	p.state = p.object(mistralNext, mistralText)
	return true
}

// mistralNext follows an object of the list.
func mistralNext(p *Parser) bool {
	switch {
	case !p.skipSpace():
		return false
	case p.buf[0] == ',':
		p.consume(1)
		p.state = mistralItem
		return true
	case p.buf[0] == ']':
		p.raw, p.buf = "", p.buf[1:]
	}
	return p.backToText(mistralText)
}

// mistralName reads a name with its arguments.
func mistralName(p *Parser) bool {
	head, w := p.head("{")
	if w != there {
		return w == differs && p.backToText(mistralText)
	}
	name, _ := strings.CutSuffix(strings.TrimSpace(head), mistralArgs)
	name, id, _ := strings.Cut(name, mistralID)
	if name = p.tool(strings.TrimSpace(name)); name == "" {
		return p.backToText(mistralText)
	}
	if id = strings.TrimSpace(id); mistralForm.MatchString(id) {
		p.identify(strings.Clone(id))
	}
	p.begin(strings.Clone(name))
	p.buf, p.state = p.buf[len(head):], p.value(mistralText)
	return true
}

// value emits the following JSON value as arguments, and continues with next.
func (p *Parser) value(next state) state {
	n := new(nest)
	return func(p *Parser) bool {
		for i := range len(p.buf) {
			if n.read(p.buf[i]) {
				p.arguments(p.buf[:i+1])
				p.complete()
				p.buf, p.state = p.buf[i+1:], next
				return true
			}
		}
		p.arguments(p.buf)
		p.buf = ""
		return false
	}
}

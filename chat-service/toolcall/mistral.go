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
	f := tagged(name, detect, tags{open: []string{mistralOpen}, other: mistralName}, around)
	f.Markers, f.id = []string{mistralOpen, mistralArgs, mistralID}, shortID
	return f
}

// mistralForm matches the ids that templates of Mistral accept.
var mistralForm = regexp.MustCompile("^[a-zA-Z0-9]{9}$")

// mistralName reads a name with its arguments.
func mistralName(t *tags) state {
	return func(p *Parser) bool {
		head, w := p.head("{")
		if before, args := p.head(mistralArgs); args == there && (w != there || len(before) < len(head)) {
			head, w = p.buf[:len(before)+len(mistralArgs)], there
		}
		if w != there {
			return w == differs && p.backToText(t.text)
		}
		name, _ := strings.CutSuffix(strings.TrimSpace(head), mistralArgs)
		name, id, _ := strings.Cut(name, mistralID)
		if name = p.tool(strings.TrimSpace(name)); name == "" {
			return p.backToText(t.text)
		}
		if id = strings.TrimSpace(id); mistralForm.MatchString(id) {
			p.identify(strings.Clone(id))
		}
		p.begin(strings.Clone(name))
		p.buf, p.state = p.buf[len(head):], p.jsonArguments(t.text)
		return true
	}
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

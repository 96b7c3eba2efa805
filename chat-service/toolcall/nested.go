package toolcall

import (
	"slices"
	"strings"
)

// nestedMark precedes each tag of MiniMax M3. It is one token.
const nestedMark = "]<]minimax[>["

// Item is the path element of the items of a list.
const Item = "item"

// A nestedCall reads the parameters of a call as tags of their names:
//
//	<city>Paris</city><days><item>1</item><item>2</item></days><at><lat>48.9</lat></at>
//
// Each tag follows nestedMark. A value whose first tag is Item is a list.
type nestedCall struct {
	t     *tags
	a     *arguments
	path  []string // the tags that are open
	lists []bool   // for each container, from the call inwards: it is a list
	begun []bool   // and it has members
}

// maxNested bounds the depth of values.
const maxNested = 100

func (t *tags) nestedParameters(a *arguments) state {
	n := &nestedCall{t: t, a: a, lists: []bool{false}, begun: []bool{false}}
	return n.between
}

// next returns the next tag, and the text before it. The tag is "" if more text is needed.
func (n *nestedCall) next(p *Parser) (before, tag, after string) {
	before, after, ok := strings.Cut(p.buf, nestedMark)
	after = strings.TrimLeft(after, space)
	end := strings.IndexByte(after, '>')
	if !ok || end < 0 || after[0] != '<' {
		return before, "", after
	}
	return before, after[1:end], after[end+1:]
}

// between is the state between the members of a container. Text there is dropped.
func (n *nestedCall) between(p *Parser) bool {
	before, tag, after := n.next(p)
	switch {
	case tag == "" && len(p.buf)-len(before) > maxHead: // no tag
		p.buf = p.buf[len(before)+len(nestedMark):]
		return true
	case tag == "":
		if len(before) == len(p.buf) {
			before = before[:len(before)-n.held(before)]
		}
		p.buf = p.buf[len(before):]
		return false
	case strings.HasPrefix(tag, "/") && slices.Contains(n.path, tag[1:]):
		for p.buf = after; n.path[len(n.path)-1] != tag[1:]; {
			n.close(p)
		}
		n.close(p)
		return true
	case strings.HasPrefix(tag, "/"), strings.HasPrefix(tag, "invoke "), len(n.path) >= maxNested:
		n.end(p)
		p.buf = nestedMark + "<" + tag + ">" + after
		return true
	}
	n.open(p, strings.Clone(tag))
	p.buf = after
	return true
}

// held returns the number of bytes at the end of s that may begin nestedMark.
func (n *nestedCall) held(s string) int {
	for k := min(len(s), len(nestedMark)-1); k > 0; k-- {
		if strings.HasPrefix(nestedMark, s[len(s)-k:]) {
			return k
		}
	}
	return 0
}

// open begins a member.
func (n *nestedCall) open(p *Parser, tag string) {
	top := len(n.lists) - 1
	n.path = append(n.path, tag)
	n.a.value = typedValue{takes: p.takes(n.a.tool, n.path...)}
	switch {
	case n.begun[top]:
		p.arguments(", ")
	case n.lists[top]:
		p.arguments("[")
	default:
		p.arguments("{")
	}
	if n.begun[top] = true; !n.lists[top] {
		p.arguments(`"` + escaped(tag) + `": `)
	}
	p.state = n.value
}

// value is the state at the beginning of a value: a tag begins a container.
func (n *nestedCall) value(p *Parser) bool {
	before, tag, _ := n.next(p)
	blank := strings.TrimLeft(p.buf, space)
	switch {
	case tag != "" && strings.TrimSpace(before) == "" && tag[0] != '/' && n.a.value.takes != TextValue:
		n.lists = append(n.lists, tag == Item)
		n.begun = append(n.begun, false)
		p.state = n.between
	case !p.last && len(p.buf) <= maxHead && (isBegun(blank, nestedMark) || strings.HasPrefix(blank, nestedMark) && tag == ""):
		return false
	default:
		p.state = valueUntil(n.a, []string{nestedMark}, 0, n.leaf)
	}
	return true
}

// leaf follows a value that is no container.
func (n *nestedCall) leaf(p *Parser) bool {
	_, tag, after := n.next(p)
	switch {
	case tag == "" && !p.last && len(p.buf) <= maxHead:
		return false
	case tag == "":
		p.buf = strings.TrimPrefix(p.buf, nestedMark)
		p.state = n.between
	case tag == "/"+n.path[len(n.path)-1]:
		p.buf = after
	}
	n.path = n.path[:len(n.path)-1]
	p.state = n.between
	return true
}

// close ends the innermost container.
func (n *nestedCall) close(p *Parser) {
	top := len(n.lists) - 1
	switch {
	case n.begun[top] && n.lists[top]:
		p.arguments("]")
	case n.begun[top]:
		p.arguments("}")
	default:
		p.arguments("{}")
	}
	n.lists, n.begun = n.lists[:top], n.begun[:top]
	if len(n.path) > 0 {
		n.path = n.path[:len(n.path)-1]
	}
}

// end ends the call.
func (n *nestedCall) end(p *Parser) {
	for len(n.lists) > 0 {
		n.close(p)
	}
	p.complete()
	p.state = n.t.closing
}

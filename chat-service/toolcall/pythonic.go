package toolcall

import "strings"

// A call of Python is name(key=value, key=value).

// python reads a call of Python. The parser continues with done after a call, and with text
// otherwise.
func (p *Parser) python(done, text state) state {
	return func(p *Parser) bool {
		name, n, w := callHead(p.buf, p.last)
		if w == unsure {
			return false
		}
		if name = p.tool(name); w == differs || name == "" {
			return p.backToText(text)
		}
		l := &literal{takes: func(key string) Value { return p.takes(name, key) }}
		p.begin(name)
		if p.buf = p.buf[n:]; strings.HasPrefix(strings.TrimLeft(p.buf, space), "{") {
			p.state = p.literal(l, closeCall(done), text) // the arguments are a dict
			return true
		}
		l.enter(')', '=')
		p.state = p.literal(l, done, text)
		return true
	}
}

// callHead returns the name of the call at the beginning of s, and the length of the name with the
// bracket. An argument must follow.
func callHead(s string, last bool) (name string, n int, _ word) {
	n = nameEnd(s)
	switch {
	case n == len(s) && !last && n <= maxWord:
		return "", 0, unsure
	case n == len(s) || n > maxWord || n == 0 || s[n] != '(':
		return "", 0, differs
	}
	name, rest := strings.Clone(s[:n]), s[n+1:]
	if dict := strings.TrimLeft(rest, space); strings.HasPrefix(dict, "{") && len(rest)-len(dict) <= maxWord {
		return name, n + 1, there
	}
	return name, n + 1, isKeyword(rest, last)
}

// closeCall drops the bracket after arguments that are a dict.
func closeCall(done state) state {
	return func(p *Parser) bool {
		if !p.skipSpace() {
			return false
		}
		p.raw, p.buf, p.state = "", strings.TrimPrefix(p.buf, ")"), done
		return true
	}
}

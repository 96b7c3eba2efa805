package toolcall

import (
	"slices"
	"strings"
)

// keyWords are the tags of calls that are a name with keys and values:
//
//	NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>
type keyWords struct {
	sep             string // may follow the name
	key, keyEnd     string
	value, valueEnd string // value is "" if keyEnd begins the value
}

// keysOf returns the tags of GLM with a suffix, which belongs to the model's file.
func keysOf(suffix string) keyWords {
	return keyWords{
		sep: "<tool_sep" + suffix + ">", key: "<arg_key" + suffix + ">", keyEnd: "</arg_key" + suffix + ">",
		value: "<arg_value" + suffix + ">", valueEnd: "</arg_value" + suffix + ">",
	}
}

func (w *keyWords) markers() []string {
	all := []string{w.sep, w.key, w.keyEnd, w.value, w.valueEnd}
	return slices.DeleteFunc(all, func(m string) bool { return m == "" })
}

// maxName bounds the names of tools, in bytes.
const maxName = 128

// name reads the name of a call with keys and values.
func (t *tags) name(p *Parser) bool {
	end := strings.IndexFunc(p.buf, func(r rune) bool {
		return !strings.ContainsRune("_-.", r) && (r < '0' || r > '9' && r < 'A' || r > 'Z' && r < 'a' || r > 'z')
	})
	switch {
	case end < 0 && !p.last && len(p.buf) <= maxName:
		return false
	case end <= 0 || end > maxName || !p.known(p.buf[:end]):
		return p.backToText(t.text)
	}
	name := strings.Clone(p.buf[:end])
	p.consume(end)
	p.state = t.firstKey(name)
	return true
}

// firstKey expects what follows the name of a call: a key, the end of the call, or the arguments as
// JSON.
func (t *tags) firstKey(name string) state {
	next := slices.Concat([]string{t.keys.key}, t.closes)
	if t.keys.sep != "" {
		next = append(next, t.keys.sep)
	}
	return func(p *Parser) bool {
		if !p.skipSpace() {
			return false
		}
		which, w := p.oneOf(next)
		switch {
		case p.buf[0] == '{':
			p.begin(name)
			p.state = p.value(t.closing)
		case w == unsure:
			return false
		case w == differs:
			return p.backToText(t.text)
		case next[which] == t.keys.sep:
			p.consume(len(t.keys.sep))
			p.begin(name)
			p.state = t.pairs(&arguments{tool: name})
		default:
			p.begin(name)
			p.state = t.pairs(&arguments{tool: name})
		}
		return true
	}
}

// pairs is the state between keys and values. It drops other text up to the end of the call.
func (t *tags) pairs(a *arguments) state {
	stops := slices.Concat([]string{t.keys.key}, t.closes, t.begins)
	return func(p *Parser) bool {
		if which, goOn := t.seek(p, a, stops, 1); which < 0 {
			return goOn
		}
		head, w := p.head(t.keys.keyEnd)
		switch w {
		case unsure:
			return false
		case there:
			p.arguments(a.open(p, strings.TrimSpace(head[len(t.keys.key):]), ""))
			p.buf = p.buf[len(head)+len(t.keys.keyEnd):]
			p.state = t.pairValue(a)
		case differs: // the tag is dropped
			p.buf = p.buf[len(t.keys.key):]
		}
		return true
	}
}

// pairValue expects the tag of a value, which may be missing.
func (t *tags) pairValue(a *arguments) state {
	stops := slices.Concat([]string{t.keys.valueEnd, t.keys.key}, t.closes)
	within := valueUntil(a, stops, 1, t.pairs(a))
	return func(p *Parser) bool {
		if t.keys.value != "" {
			trimmed := strings.TrimLeft(p.buf, space)
			switch {
			case strings.HasPrefix(trimmed, t.keys.value):
				p.buf = trimmed[len(t.keys.value):]
			case !p.last && len(p.buf) <= maxHead && strings.HasPrefix(t.keys.value, trimmed):
				return false
			}
		}
		p.state = within
		return true
	}
}

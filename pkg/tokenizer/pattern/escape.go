package pattern

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escape reads an escape outside of classes, from behind its backslash.
func (p *parser) escape() (*node, error) {
	if !p.more() {
		return nil, errors.New("the expression ends with a backslash")
	}
	at := p.at
	if s, ok, err := p.shorthand(); ok || err != nil {
		if err == nil {
			err = p.count(len(s))
		}
		return &node{kind: setNode, set: s}, err
	}
	r := p.next()
	assert := map[rune]position{'b': wordEdge, 'B': notWordEdge, 'A': textStart, 'z': textEnd}
	if p.dialect == oniguruma {
		assert['Z'], assert['G'] = lastLineEnd, searchStart
	}
	if position, ok := assert[r]; ok {
		return &node{kind: assertNode, at: position}, nil
	}
	if p.dialect == oniguruma {
		switch r {
		case 'R':
			return &node{kind: atomicNode, subs: []*node{{kind: choiceNode, subs: []*node{
				{kind: textNode, text: []rune("\r\n")}, {kind: setNode, set: lineEnds},
			}}}}, nil
		case 'X':
			return &node{kind: graphemeNode}, nil
		case 'N':
			return &node{kind: setNode, set: setOf('\n').negate()}, nil
		case 'O':
			return &node{kind: setNode, set: set(nil).negate()}, nil
		}
	}
	p.at = at
	r, err := p.escaped()
	if err != nil {
		return nil, err
	}
	return p.literal(r), nil
}

var lineEnds = newSet(runeSpan{'\n', '\r'}, runeSpan{0x85, 0x85}, runeSpan{0x2028, 0x2029})

// escaped reads an escaped character. It refuses the escapes that mean more than a character.
func (p *parser) escaped() (rune, error) {
	at := p.at
	r := p.next()
	switch r {
	case 't':
		return '\t', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 'f':
		return '\f', nil
	case 'v':
		return '\v', nil
	case 'a':
		return '\a', nil
	case 'e':
		if p.dialect == oniguruma {
			return 0x1B, nil
		}
	case 'x':
		if p.take("{") {
			end := strings.IndexByte(p.src[p.at:], '}')
			if end < 0 {
				return 0, errors.New(`\x{ has no end`)
			}
			digits := p.src[p.at : p.at+end]
			p.at += end + 1
			return code(digits, 8)
		}
		c, err := p.digits(2)
		if err == nil && c >= utf8.RuneSelf && p.dialect == oniguruma {
			err = unsupported(`a byte that is not a character, \x80 or more,`)
		}
		return c, err
	case 'u':
		return p.digits(4)
	}
	known := p.dialect == oniguruma && strings.ContainsRune("pPijlmqEFIJLQTUV", r) // these letters mean themselves
	if !known && r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
		return 0, unsupported(fmt.Sprintf("the escape %q", p.src[at-1:p.at]))
	}
	return r, nil
}

// digits reads n hexadecimal digits.
func (p *parser) digits(n int) (rune, error) {
	if p.at+n > len(p.src) {
		return 0, fmt.Errorf("an escape has fewer than %d digits", n)
	}
	p.at += n
	return code(p.src[p.at-n:p.at], n)
}

func code(digits string, most int) (rune, error) {
	n, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || len(digits) > most || !utf8.ValidRune(rune(n)) {
		return 0, fmt.Errorf("%.20q is not the number of a character", digits)
	}
	return rune(n), nil
}

// shorthand reads \d, \s, \w, \h and \p{...} and their negations.
func (p *parser) shorthand() (s set, ok bool, err error) {
	r := p.src[p.at]
	switch {
	case (r == 'p' || r == 'P') && (strings.HasPrefix(p.src[p.at+1:], "{") || p.dialect == tiktoken && p.at+1 < len(p.src)):
		p.at++
		s, err = p.property()
	case r == 'd' || r == 'D':
		p.at++
		s, err = property("nd")
	case r == 's' || r == 'S':
		p.at++
		s, err = property("space")
	case r == 'w' || r == 'W':
		p.at++
		if s, err = property("word"); p.dialect == tiktoken {
			s = s.union(fromTables(unicode.Join_Control))
		}
	case (r == 'h' || r == 'H') && p.dialect == oniguruma:
		p.at++
		s, err = property("xdigit")
	default:
		return nil, false, nil
	}
	if unicode.IsUpper(rune(r)) {
		s = s.negate()
	}
	if p.dialect == tiktoken && p.fold && err == nil {
		s = s.folded()
	}
	return s, true, err
}

// property reads the name of a property, {Name} or {^Name}, or with tiktoken one letter.
func (p *parser) property() (set, error) {
	if !p.take("{") {
		return property(strings.ToLower(string(p.next())))
	}
	end := strings.IndexByte(p.src[p.at:], '}')
	if end < 0 {
		return nil, errors.New("a property has no end")
	}
	name := p.src[p.at : p.at+end]
	p.at += end + 1
	name, not := strings.CutPrefix(name, "^")
	if p.dialect == tiktoken {
		for _, key := range []string{"Script=", "sc=", "General_Category=", "gc="} {
			name = strings.TrimPrefix(name, key)
		}
	}
	s, err := property(strings.ToLower(strings.NewReplacer(" ", "", "_", "", "-", "").Replace(name)))
	if err != nil {
		return nil, unsupported(fmt.Sprintf("the property %.60q", name))
	}
	if not {
		s = s.negate()
	}
	return s, nil
}

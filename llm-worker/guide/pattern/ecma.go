package pattern

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
)

// Sets of characters as ranges within brackets, where ECMA-262 and Go differ or both need one.
const (
	space    = `\x{9}-\x{d}\x{20}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`
	notSpace = `\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}` +
		`\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}`
	notLine = `[^\n\r\x{2028}\x{2029}]`
)

// sets are the escapes of sets of characters.
var sets = map[byte]string{'d': `0-9`, 'D': `\D`, 'w': `0-9A-Za-z_`, 'W': `\W`, 's': space, 'S': notSpace}

// A translator turns an expression of ECMA-262, with the flag u as far as it matters, into one of Go. An
// empty group with a name stands for each lookaround.
type translator struct {
	in     string
	at     int
	within bool // a lookaround
	out    strings.Builder
	looks  []lookaround
}

type lookaround struct {
	name, translated string
	back, not        bool
}

func (t *translator) translate() error {
	for t.at < len(t.in) {
		var err error
		switch b := t.in[t.at]; b {
		case '\\':
			err = t.escape(false)
		case '[':
			err = t.brackets()
		case '(':
			err = t.group()
		case '.':
			t.at++
			t.out.WriteString(notLine)
		default:
			t.at++
			t.out.WriteByte(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lookarounds are how they begin.
var lookarounds = []struct {
	begin     string
	back, not bool
}{{"(?=", false, false}, {"(?!", false, true}, {"(?<=", true, false}, {"(?<!", true, true}}

// look translates a lookaround. ok is false for other groups.
func (t *translator) look() (ok bool, err error) {
	for _, l := range lookarounds {
		if !strings.HasPrefix(t.in[t.at:], l.begin) {
			continue
		}
		end := groupEnd(t.in, t.at)
		switch {
		case end < 0:
			return true, errors.New("it is not a regular expression: a lookaround has no end")
		case t.within:
			return true, errors.New("it has a lookahead or a lookbehind within another one, which cannot be enforced")
		case strings.IndexByte("*+?{", (t.in + " ")[end]) >= 0:
			return true, errors.New("it repeats a lookahead or a lookbehind, which cannot be enforced")
		}
		inside := &translator{in: t.in[t.at+len(l.begin) : end-1], within: true}
		if err := inside.translate(); err != nil {
			return true, err
		}
		name := fmt.Sprint("look", len(t.looks))
		t.looks = append(t.looks, lookaround{name, inside.out.String(), l.back, l.not})
		t.out.WriteString("(?P<" + name + ">)")
		t.at = end
		return true, nil
	}
	return false, nil
}

// groupEnd returns the end of the group that begins at i, or -1.
func groupEnd(e string, i int) int {
	for depth := 0; i < len(e); i++ {
		switch e[i] {
		case '\\':
			i++
		case '[':
			for i++; i < len(e) && e[i] != ']'; i++ {
				if e[i] == '\\' {
					i++
				}
			}
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// group copies the beginning of a group.
func (t *translator) group() error {
	rest := t.in[t.at:]
	if ok, err := t.look(); ok {
		return err
	}
	switch {
	case strings.HasPrefix(rest, "(?:"):
		t.at += len("(?:")
		t.out.WriteString("(?:")
	case strings.HasPrefix(rest, "(?<"):
		end := strings.IndexByte(rest, '>')
		if end < 0 {
			return errors.New("it has a group name without an end")
		}
		t.at += end + 1
		t.out.WriteByte('(')
	case strings.HasPrefix(rest, "(?"):
		return fmt.Errorf("it has a group of an unknown kind, %.4q", rest)
	default:
		t.at++
		t.out.WriteByte('(')
	}
	return nil
}

// brackets translates a set in brackets.
func (t *translator) brackets() error {
	t.at++
	if strings.HasPrefix(t.in[t.at:], "^]") {
		t.at += len("^]")
		t.out.WriteString(`[\x{0}-\x{10ffff}]`)
		return nil
	}
	t.out.WriteByte('[')
	if strings.HasPrefix(t.in[t.at:], "^") {
		t.at++
		t.out.WriteByte('^')
	}
	if strings.HasPrefix(t.in[t.at:], "]") {
		return errors.New("it has an empty character class")
	}
	for t.at < len(t.in) {
		switch b := t.in[t.at]; b {
		case ']':
			t.at++
			t.out.WriteByte(']')
			return nil
		case '[':
			t.at++
			t.out.WriteString(`\[`)
		case '\\':
			isSet := t.at+1 < len(t.in) && (sets[t.in[t.at+1]] != "" || t.in[t.at+1]|0x20 == 'p')
			if err := t.escape(true); err != nil {
				return err
			}
			if isSet && strings.HasPrefix(t.in[t.at:], "-") { // a set does not begin a range
				t.at++
				t.out.WriteString(`\-`)
			}
		default:
			t.at++
			t.out.WriteByte(b)
		}
	}
	return errors.New("it has a character class without an end")
}

// escape translates what a backslash begins.
func (t *translator) escape(bracketed bool) error {
	if t.at+1 >= len(t.in) {
		return errors.New("it ends with a backslash")
	}
	b := t.in[t.at+1]
	t.at += 2
	switch {
	case sets[b] != "" && bracketed:
		t.out.WriteString(sets[b])
	case sets[b] != "":
		t.out.WriteString("[" + sets[b] + "]")
	case b == 'p' || b == 'P':
		end := strings.IndexByte(t.in[t.at:], '}')
		if !strings.HasPrefix(t.in[t.at:], "{") || end < 0 {
			return fmt.Errorf(`it has \%c without a property in braces`, b)
		}
		name := t.in[t.at+1 : t.at+end]
		t.at += end + 1
		ranges := emoji[name]
		switch {
		case ranges == "":
			t.out.WriteString(`\` + string(b) + "{" + property(name) + "}")
		case b == 'p' && bracketed:
			t.out.WriteString(ranges)
		case b == 'p':
			t.out.WriteString("[" + ranges + "]")
		case bracketed:
			return fmt.Errorf(`it has \P{%s} in a character class, which is not supported`, name)
		default:
			t.out.WriteString("[^" + ranges + "]")
		}
	case b == 'b' && bracketed:
		t.out.WriteString(`\x{8}`)
	case (b == 'b' || b == 'B') && !bracketed:
		t.out.WriteString(`\` + string(b))
	case b >= '1' && b <= '9' || b == 'k':
		return errors.New(`it has the backreference \` + string(b) + `, which cannot be enforced`)
	case strings.IndexByte("tnvfr", b) >= 0:
		t.out.WriteString(`\` + string(b))
	case b == 'c' && t.at < len(t.in) && isLetter(t.in[t.at]):
		fmt.Fprintf(&t.out, `\x{%x}`, t.in[t.at]&0x1f)
		t.at++
	case b == '0' && (t.at == len(t.in) || t.in[t.at] < '0' || t.in[t.at] > '9'):
		t.out.WriteString(`\x{0}`)
	case b == 'x' || b == 'u':
		return t.number(b)
	case b < 0x80 && (isLetter(b) || b >= '0' && b <= '9'):
		return fmt.Errorf(`it has the unknown escape \%c`, b)
	case b >= 0x80:
		t.out.WriteByte(b) // the rest of the character follows
	case bracketed:
		t.out.WriteString(`\` + string(b))
	default:
		t.out.WriteString(regexp.QuoteMeta(string(b)))
	}
	return nil
}

func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// number translates \xHH, \uHHHH and \u{H}, whose letter has been read.
func (t *translator) number(kind byte) error {
	digits := map[byte]int{'x': 2, 'u': 4}[kind]
	code, ok := t.hex(digits)
	if kind == 'u' && !ok && strings.HasPrefix(t.in[t.at:], "{") {
		end := strings.IndexByte(t.in[t.at:], '}')
		if end > 0 {
			if n, err := strconv.ParseUint(t.in[t.at+1:t.at+end], 16, 32); err == nil {
				code, ok = rune(n), n <= lastRune //nolint:gosec // it has 21 bits
			}
			t.at += end + 1
		}
	}
	if ok && utf16.IsSurrogate(code) && strings.HasPrefix(t.in[t.at:], `\u`) {
		t.at += 2
		var low rune
		if low, ok = t.hex(4); ok {
			code = utf16.DecodeRune(code, low)
			ok = code != '\ufffd'
		}
	}
	if !ok || utf16.IsSurrogate(code) {
		return fmt.Errorf(`it has \%c without the number of a character`, kind)
	}
	fmt.Fprintf(&t.out, `\x{%x}`, code)
	return nil
}

// hex reads a number of hexadecimal digits.
func (t *translator) hex(digits int) (rune, bool) {
	if t.at+digits > len(t.in) {
		return 0, false
	}
	n, err := strconv.ParseUint(t.in[t.at:t.at+digits], 16, 32)
	if err != nil {
		return 0, false
	}
	t.at += digits
	return rune(n), true //nolint:gosec // at most four digits
}

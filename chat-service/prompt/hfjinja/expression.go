package hfjinja

import "strings"

// expression converts tokens to an expression of the library's dialect.
func (t *translator) expression(toks []token) string { return join(t.strict(t.replace(toks))) }

// replace replaces the tests, filters and methods that the library gets wrong.
func (t *translator) replace(toks []token) []token {
	var out []token
	for i := 0; i < len(toks); i++ {
		tok := toks[i]
		next := func(n int) token {
			if i+n < len(toks) {
				return toks[i+n]
			}
			return token{operator, ""}
		}
		switch {
		case tok.kind == str && len(out) > 0 && out[len(out)-1].kind == str && toks[i-1].kind == str:
			out[len(out)-1].text += tok.text // 'a' 'b' is 'ab'
		case tok.is(operator, ".") && next(1).kind == name && next(2).is(operator, "(") && (*budget)(nil).method(next(1).text) != nil:
			out = append(out, token{operator, "|"}, token{name, t.helper("_hf_method_" + next(1).text)})
			i++
		case tok.is(operator, "|") && replaced(toks[i+1:]):
			out = append(out, tok, token{name, t.helper("_hf_filter_" + next(1).text)})
			i++
		case tok.is(operator, "|") && counters[next(1).text] != "":
			out = append(out, tok, token{name, t.helper(counters[next(1).text])}, tok)
		case tok.is(name, "is"):
			n := 1
			negated := next(1).is(name, "not")
			if negated {
				n++
			}
			test := next(n)
			if test.is(name, "sequence") || test.is(name, "iterable") {
				// In Jinja2 strings, mappings and undefined values pass both tests; in the library
				// some do not.
				out = append(out, token{operator, "|"}, token{name, t.helper("_hf_many")})
				test.text = "true"
			}
			if out = append(out, tok); negated {
				out = append(out, next(1))
			}
			out = append(out, test)
			i += n
			if beginsOperand(next(1)) { // "is eq 1" is "is eq(1)"
				out = append(out, token{operator, "("}, next(1), token{operator, ")"})
				i++
			}
		default:
			out = append(out, tok)
		}
	}
	return out
}

func beginsOperand(tok token) bool {
	switch tok.kind {
	case str, number:
		return true
	case name:
		switch tok.text {
		case "and", "or", "not", "if", "else", "in", "is", "recursive":
			return false
		}
		return true
	case operator:
	}
	return false
}

// join writes tokens separated by spaces, so that no two tokens can be read as one.
func join(toks []token) string {
	var b strings.Builder
	for i, tok := range toks {
		if i > 0 {
			b.WriteByte(' ')
		}
		if tok.kind == str {
			b.WriteString(quote(tok.text))
		} else {
			b.WriteString(tok.text)
		}
	}
	return b.String()
}

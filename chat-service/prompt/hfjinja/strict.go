package hfjinja

import (
	"iter"
	"slices"
)

// strict rewrites an expression so that it fails where Jinja2 fails: the library continues with an
// empty value if a value has the wrong type. It also supports "*" in arguments, which the library
// does not. It returns
//
//	_hf_add(a, b, c)       for a + b + c
//	_hf_concat(a, b)       for a ~ b
//	_hf_mul(a, b)          for a * b
//	_hf_slice(a, 1, none, none)  for a[1:]
//	_hf_made([a, b])       for [a, b], unless it has only literals
//	_hf_in(a, b)           for a in b, and _hf_not_in
//	_hf_known(a.b).c       for a.b.c
//	_hf_call(f, [a], xs)   for f(a, *xs)
//
// The precedence of operators is Jinja2's, in which ~ binds closer than +.
func (t *translator) strict(toks []token) []token {
	return t.clauses(t.operands(toks))
}

// keywords are the names that are not operands.
var keywords = []string{"and", "or", "not", "if", "else", "in", "is", "recursive"}

// operands rewrites the accessors and arguments of every operand, and the contents of brackets.
func (t *translator) operands(toks []token) []token {
	o := operands{translator: t, start: -1}
	for i := 0; i < len(toks); i++ {
		tok := toks[i]
		after := func(text string) bool { return i > 0 && toks[i-1].is(operator, text) }
		switch {
		case tok.kind == name && after("."), tok.kind == name && after("|"):
			o.out = append(o.out, tok)
		case tok.is(name, "is"): // the name of a test follows
			for o.out = append(o.out, tok); i+1 < len(toks) && toks[i+1].kind == name; i++ {
				o.out = append(o.out, toks[i+1])
				if toks[i+1].text != "not" {
					i++
					break
				}
			}
			o.start = -1
		case tok.kind == name && slices.Contains(keywords, tok.text):
			o.out, o.start = append(o.out, tok), -1
		case tok.kind != operator:
			o.start, o.accessed = len(o.out), false
			o.out = append(o.out, tok)
		case tok.text == "(" || tok.text == "[" || tok.text == "{":
			end := i + closing(toks[i:])
			o.bracket(tok, toks[i+1:end], toks[end])
			i = end
		case tok.text == "." && o.start >= 0:
			o.known()
			o.out = append(o.out, tok)
		case tok.text == "|":
			o.accessed = true
			o.out = append(o.out, tok)
		default:
			o.out, o.start = append(o.out, tok), -1
		}
	}
	return o.out
}

// operands is the state of a translation of operands.
type operands struct {
	*translator
	out      []token
	start    int  // start of the current operand in out; -1 means none
	accessed bool // the operand may be undefined, because it is an access
}

// known adds a check that the current operand is defined, unless it is certain.
func (o *operands) known() {
	if o.accessed {
		o.out = slices.Insert(o.out, o.start, token{name, o.helper("_hf_known")}, token{operator, "("})
		o.out = append(o.out, token{operator, ")"})
	}
	o.accessed = true
}

// bracket translates a literal, an index, a slice, a call, or an expression in parentheses.
func (o *operands) bracket(open token, inner []token, end token) {
	switch {
	case o.start < 0 || open.text == "{":
		o.start, o.accessed = len(o.out), open.text == "("
		if !o.accessed && !constant(inner) {
			o.out = append(o.out, o.apply("_hf_made", slices.Concat([]token{open}, o.strict(inner), []token{end}))...)
			return
		}
	case open.text == "[" && topLevel(inner, operator, ":") >= 0:
		o.known()
		o.out = append(o.out[:o.start:o.start], o.sliced(o.out[o.start:], inner)...)
		return
	case open.text == "(" && slices.ContainsFunc(cutAt(inner, ","), isSplat):
		o.out = append(o.out[:o.start:o.start], o.splat(o.out[o.start:], inner)...)
		return
	case open.text == "[":
		o.known()
	default:
		o.accessed = true
	}
	o.out = append(append(append(o.out, open), o.strict(inner)...), end)
}

// constant reports whether toks has only literals.
func constant(toks []token) bool {
	return !slices.ContainsFunc(toks, func(tok token) bool {
		return tok.kind == name && !slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, tok.text)
	})
}

// sliced returns the call for a slice.
func (t *translator) sliced(of, bounds []token) []token {
	parts := append(cutAt(bounds, ":"), nil, nil)[:3]
	args := [][]token{of}
	for _, part := range parts {
		if part = t.strict(part); len(part) == 0 {
			part = []token{{name, "none"}}
		}
		args = append(args, part)
	}
	return t.apply("_hf_slice", args...)
}

func isSplat(arg []token) bool { return len(arg) > 0 && arg[0].is(operator, "*") }

// splat returns a call of callee with arguments in lists.
func (t *translator) splat(callee, args []token) []token {
	out := append([]token{{name, t.helper("_hf_call")}, {operator, "("}}, callee...)
	for _, arg := range cutAt(args, ",") {
		out = append(out, token{operator, ","})
		switch {
		case isSplat(arg):
			out = append(out, t.strict(arg[1:])...)
		case len(arg) > 1 && arg[1].is(operator, "="):
			out = append(out, t.strict(arg)...)
		default:
			out = append(append(append(out, token{operator, "["}), t.strict(arg)...), token{operator, "]"})
		}
	}
	return append(out, token{operator, ")"})
}

// clauses splits at the operators of lowest precedence and rewrites the parts, down to the operands
// of +.
func (t *translator) clauses(toks []token) []token {
	return eachPart(toks, func(i int) bool {
		tok := toks[i]
		switch {
		case tok.is(name, "not"):
			return !isTest(toks, i) && !isNotIn(toks, i)
		case tok.kind == name:
			return slices.Contains([]string{"and", "or", "if", "else", "recursive"}, tok.text)
		}
		return tok.kind == operator && slices.Contains([]string{",", "=", ":"}, tok.text)
	}, t.comparison)
}

var comparisons = []string{"==", "!=", "<", ">", "<=", ">="}

func (t *translator) comparison(toks []token) []token {
	isIn := func(i int) bool { return toks[i].is(name, "in") && !isTest(toks, i) }
	isNot := func(i int) bool {
		return toks[i].is(name, "not") && i+1 < len(toks) && toks[i+1].is(name, "in") && !isTest(toks, i)
	}
	compares := func(i int) bool {
		return isIn(i) || isNot(i) || toks[i].kind == operator && slices.Contains(comparisons, toks[i].text)
	}
	at, several := -1, false
	for i := range outside(toks) {
		if isIn(i) {
			at, several = i, several || at >= 0
		} else if compares(i) && !isNotIn(toks, i) {
			several = true
		}
	}
	if at < 0 || several { // the library evaluates a chain of comparisons
		return eachPart(toks, compares, t.sum)
	}
	helper, left := "_hf_in", toks[:at]
	if at > 0 && isNotIn(toks, at-1) {
		helper, left = "_hf_not_in", toks[:at-1]
	}
	return t.apply(helper, t.sum(left), t.sum(toks[at+1:]))
}

// isTest reports whether toks[i] belongs to the name of a test.
func isTest(toks []token, i int) bool {
	return i > 0 && (toks[i-1].is(name, "is") || toks[i-1].is(name, "not") && i > 1 && toks[i-2].is(name, "is"))
}

// isNotIn reports whether toks[i] begins the operator "not in".
func isNotIn(toks []token, i int) bool {
	return toks[i].is(name, "not") && i+1 < len(toks) && toks[i+1].is(name, "in") && !isTest(toks, i)
}

// sum rewrites the terms of + and -. Consecutive additions become one call.
func (t *translator) sum(toks []token) []token {
	var terms [][]token // to be added
	added := func() []token {
		if len(terms) == 1 {
			return terms[0]
		}
		return t.apply("_hf_add", terms...)
	}
	start, sign := 0, "+"
	take := func(end int) {
		term := t.concat(toks[start:end])
		if sign == "+" {
			terms = append(terms, term)
			return
		}
		terms = [][]token{append(append(added(), token{operator, sign}), term...)}
	}
	for i := range outside(toks) {
		if i > start && (toks[i].is(operator, "+") || toks[i].is(operator, "-")) && endsOperand(toks[i-1]) {
			take(i)
			start, sign = i+1, toks[i].text
		}
	}
	take(len(toks))
	return added()
}

// endsOperand reports whether a sign after tok is a binary operator.
func endsOperand(tok token) bool {
	return tok.kind != operator || tok.text == ")" || tok.text == "]" || tok.text == "}"
}

func (t *translator) concat(toks []token) []token {
	parts := cutAt(toks, "~")
	for i := range parts {
		parts[i] = t.product(parts[i])
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return t.apply("_hf_concat", parts...)
}

// product rewrites multiplications.
func (t *translator) product(toks []token) []token {
	if !slices.ContainsFunc(toks, func(tok token) bool { return tok.is(operator, "*") }) {
		return toks
	}
	var out []token
	start, sign := 0, ""
	take := func(end int) {
		switch factor := toks[start:end]; sign {
		case "":
			out = factor
		case "*":
			out = t.apply("_hf_mul", out, factor)
		default:
			out = append(append(slices.Clone(out), token{operator, sign}), factor...)
		}
	}
	for i := range outside(toks) {
		if i > start && toks[i].kind == operator && slices.Contains([]string{"*", "/", "//", "%"}, toks[i].text) {
			take(i)
			start, sign = i+1, toks[i].text
		}
	}
	take(len(toks))
	return out
}

// apply returns a call of a helper.
func (t *translator) apply(helper string, args ...[]token) []token {
	out := []token{{name, t.helper(helper)}, {operator, "("}}
	for i, arg := range args {
		if i > 0 {
			out = append(out, token{operator, ","})
		}
		out = append(out, arg...)
	}
	return append(out, token{operator, ")"})
}

// eachPart applies change to the parts between the separators outside of brackets.
func eachPart(toks []token, separates func(i int) bool, change func([]token) []token) []token {
	var out []token
	start := 0
	for i := range outside(toks) {
		if separates(i) {
			out = append(append(out, change(toks[start:i])...), toks[i])
			start = i + 1
		}
	}
	return append(out, change(toks[start:])...)
}

// outside yields the indices of the tokens that are neither brackets nor inside brackets.
func outside(toks []token) iter.Seq[int] {
	return func(yield func(int) bool) {
		depth := 0
		for i, tok := range toks {
			change := 0
			if tok.kind == operator {
				change = depthChange(tok.text)
			}
			if depth == 0 && change == 0 && !yield(i) {
				return
			}
			depth += change
		}
	}
}

// cutAt splits at an operator outside of brackets.
func cutAt(toks []token, at string) [][]token {
	var parts [][]token
	for {
		i := topLevel(toks, operator, at)
		if i < 0 {
			return append(parts, toks)
		}
		parts = append(parts, toks[:i])
		toks = toks[i+1:]
	}
}

// closing returns the index of the bracket that closes the first token. The lexer guarantees that
// there is one.
func closing(toks []token) int {
	depth := 0
	for i, tok := range toks {
		if tok.kind == operator {
			depth += depthChange(tok.text)
		}
		if depth == 0 {
			return i
		}
	}
	return len(toks) - 1
}

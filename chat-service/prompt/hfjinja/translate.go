package hfjinja

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A translator rewrites a template so that the library renders it like Jinja2:
//
//   - Text becomes string literals, so that the library's own whitespace rules find nothing to trim.
//   - Outputs, loops, macros and call blocks report to the render's budget.
//   - Operators and accessors fail where they fail in Jinja2; see strict.
//   - Methods, filters and tests that the library has not or gets wrong are replaced by those in this package.
//   - Variables set in a loop body are reset for each iteration, and a loop's else is a condition after it.
//
// Names that begin with Own are reserved for the translation.
type translator struct {
	out    []string
	blocks []block
	used   map[string]bool   // helpers that the template needs
	costs  []cost            // of bodies
	unseen int               // tokens since the last look
	consts map[string]string // string literals that cannot stay in the source
}

// tokensPerLook is the number of tokens after which the budget looks at its context again.
const tokensPerLook = 1 << 10

// A block is an open block statement.
type block struct {
	kind    string // the keyword that opens it
	line    int
	opening int // index in out of its first tag
	body    cost
	filter  []token // of a filter block
	// Only for loops.
	targets []string
	sets    []string
	inElse  bool
}

// completed returns the name of the variable that records whether an iteration of the loop has
// completed. Jinja2 runs a loop's else if no iteration has completed, even if break or continue
// left each of them; the library only if there was no iteration.
func (b *block) completed() string { return fmt.Sprintf("_hf_completed%d", b.opening) }

// filtered returns the name of the variable with the text of a filter block.
func (b *block) filtered() string { return fmt.Sprintf("_hf_filtered%d", b.opening) }

// translate returns source in the library's dialect.
func translate(source string) (*translator, string, error) {
	segments, err := lex(source)
	if err != nil {
		return nil, "", err
	}
	t := &translator{used: map[string]bool{}, consts: map[string]string{}}
	for _, seg := range segments {
		if err := t.segment(seg); err != nil {
			return nil, "", fmt.Errorf("line %d: %w", seg.line, err)
		}
	}
	if len(t.blocks) > 0 {
		b := t.blocks[len(t.blocks)-1]
		return nil, "", fmt.Errorf("line %d: %q without end", b.line, b.kind)
	}
	return t, strings.Join(t.out, ""), nil
}

func (t *translator) segment(seg segment) error {
	if t.unseen += len(seg.tokens); t.unseen > tokensPerLook {
		t.unseen = 0
		t.emit("{{%s()}}", t.helper("_hf_look"))
	}
	if b := t.body(); b != nil {
		for _, tok := range seg.tokens {
			if tok.kind == operator && slices.Contains([]string{"[", "{", ",", ":", "="}, tok.text) { // an element of a list, mapping or namespace
				b.body.made += valueSize
			}
		}
	}
	switch seg.kind {
	case literal:
		t.literal(seg.text)
		return nil
	case output:
		if len(seg.tokens) == 0 {
			return errors.New("empty expression")
		}
		if toks := seg.tokens; len(toks) == 1 && toks[0].kind == str {
			t.literal(toks[0].text)
			return nil
		}
		t.emit("{{%s(%s)}}", t.helper("_hf_out"), t.expression(seg.tokens))
		return nil
	default:
		return t.statement(seg)
	}
}

func (t *translator) emit(format string, args ...any) {
	t.out = append(t.out, fmt.Sprintf(format, args...))
}

func (t *translator) helper(name string) string {
	t.used[name] = true
	return name
}

func (t *translator) literal(text string) {
	t.emit("{{%s}}", quote(text))
	if b := t.body(); b != nil {
		b.body.text += len(text)
	}
}

// body returns the innermost open loop, macro or call block, or nil.
func (t *translator) body() *block {
	for i, b := range slices.Backward(t.blocks) {
		if b.kind == "for" || b.kind == "macro" || b.kind == "call" {
			return &t.blocks[i]
		}
	}
	return nil
}

// cost returns the index of a new cost.
func (t *translator) cost(c cost) int {
	t.costs = append(t.costs, c)
	return len(t.costs) - 1
}

// statement handles {% keyword … %}.
func (t *translator) statement(seg segment) error {
	if len(seg.tokens) == 0 || seg.tokens[0].kind != name {
		return errors.New("statement without keyword")
	}
	keyword, rest := seg.tokens[0].text, seg.tokens[1:]
	switch keyword {
	case "filter": // becomes a text and an output, which are counted
		if err := t.open(keyword, seg.line); err != nil {
			return err
		}
		b := &t.blocks[len(t.blocks)-1]
		b.filter = rest
		t.emit("{%%set %s%%}", b.filtered())
		return nil
	case "if", "call", "generation":
		if err := t.open(keyword, seg.line); err != nil {
			return err
		}
		t.emit("{%%%s %s%%}", keyword, t.expression(rest))
		return nil
	case "for":
		return t.loop(seg)
	case "set":
		return t.set(seg)
	case "macro":
		if err := t.open(keyword, seg.line); err != nil {
			return err
		}
		t.emit("{%%macro %s%%}", t.signature(rest))
		return nil
	case "elif":
		t.emit("{%%elif %s%%}", t.expression(rest))
		return nil
	case "else":
		if n := len(t.blocks); n > 0 && t.blocks[n-1].kind == "for" && !t.blocks[n-1].inElse {
			b := &t.blocks[n-1]
			b.inElse = true
			t.emit("{%%set %s.any = true%%}{%%endfor%%}{%%if not %s.any%%}", b.completed(), b.completed())
			return nil
		}
		t.emit("{%%else%%}")
		return nil
	case "break", "continue":
		t.emit("{%%%s%%}", keyword)
		return nil
	case "endif", "endfor", "endset", "endmacro", "endcall", "endfilter", "endgeneration":
		return t.end(strings.TrimPrefix(keyword, "end"))
	default:
		return fmt.Errorf("statement %q is not supported", keyword)
	}
}

func (t *translator) open(kind string, line int) error {
	if len(t.blocks) == maxLevels {
		return fmt.Errorf("%w: more than %d nested blocks", ErrLimit, maxLevels)
	}
	t.blocks = append(t.blocks, block{kind: kind, line: line, opening: len(t.out)})
	return nil
}

// end closes a block. Only now is the information complete for its start: the amount of text that a
// run writes, and the variables that each iteration must reset to their values before the loop.
func (t *translator) end(kind string) error {
	n := len(t.blocks)
	if n == 0 || t.blocks[n-1].kind != kind {
		return fmt.Errorf("unexpected end%s", kind)
	}
	b := t.blocks[n-1]
	t.blocks = t.blocks[:n-1]
	opening := &t.out[b.opening]
	switch kind {
	case "for":
		*opening += fmt.Sprintf("{{%s(%d)}}", t.helper("_hf_step"), t.cost(b.body))
		if b.inElse {
			*opening = fmt.Sprintf("{%%set %s = namespace(any=false)%%}", b.completed()) + *opening
			kind = "if"
		}
		for _, v := range b.sets {
			if v == "loop" || slices.Contains(b.targets, v) {
				continue
			}
			saved := fmt.Sprintf("_hf_outer%d_%s", b.opening, v)
			*opening = fmt.Sprintf("{%%set %s = %s%%}", saved, v) + *opening + fmt.Sprintf("{%%set %s = %s%%}", v, saved)
		}
	case "filter":
		text := append([]token{{name, b.filtered()}, {operator, "|"}}, b.filter...)
		t.emit("{%%endset%%}{{%s(%s)}}", t.helper("_hf_out"), t.expression(text))
		return nil
	case "macro", "call":
		*opening += fmt.Sprintf("{{%s(%d)}}", t.helper("_hf_enter"), t.cost(b.body))
		t.emit("{{%s()}}", t.helper("_hf_leave"))
	}
	t.emit("{%%end%s%%}", kind)
	return nil
}

// loop handles {% for targets in iterable [if filter] [recursive] %}.
func (t *translator) loop(seg segment) error {
	toks := seg.tokens[1:]
	in := topLevel(toks, name, "in")
	if in < 0 {
		return errors.New("for without in")
	}
	var targets []string
	for i, tok := range toks[:in] {
		if tok.kind == name {
			targets = append(targets, tok.text)
		}
		if wantName := i%2 == 0; wantName != (tok.kind == name) || !wantName && tok.text != "," {
			return fmt.Errorf("unsupported loop target %q", join(toks[:in]))
		}
	}
	over, tail, filter := toks[in+1:], "", ""
	if n := len(over); n > 0 && over[n-1].is(name, "recursive") {
		over, tail = over[:n-1], " recursive"
	}
	if i := topLevel(over, name, "if"); i >= 0 {
		over, filter = over[:i], t.expression(over[i+1:])
	}
	iterable := fmt.Sprintf("%s(%s)", t.helper("_hf_iter"), t.expression(over))
	if err := t.open("for", seg.line); err != nil {
		return err
	}
	b := &t.blocks[len(t.blocks)-1]
	b.targets = targets
	switch variables := strings.Join(targets, ","); {
	case filter == "" && len(targets) <= 2:
		t.emit("{%%for %s in %s%s%%}", variables, iterable, tail)
	case len(targets) == 1:
		t.emit("{%%for %s in %s if %s%s%%}", variables, iterable, filter, tail)
	case filter == "":
		t.emit("{%%for _hf_item%d in %s%s%%}%s", b.opening, iterable, tail, t.unpack(b))
	default: // the library's filter supports only one variable
		t.emit("{%%set _hf_kept%d = []%%}{%%for _hf_item%d in %s%%}%s{%%if %s%%}{{%s(_hf_kept%d, _hf_item%d)}}{%%endif%%}{%%endfor%%}"+
			"{%%for _hf_item%d in _hf_kept%d%s%%}%s", b.opening, b.opening, iterable, t.unpack(b), filter, t.helper("_hf_keep"), b.opening, b.opening,
			b.opening, b.opening, tail, t.unpack(b))
	}
	return nil
}

// unpack sets the variables of a loop from the parts of its item.
func (t *translator) unpack(b *block) string {
	var out strings.Builder
	for i, target := range b.targets {
		fmt.Fprintf(&out, "{%%set %s = %s(_hf_item%d, %d, %d)%%}", target, t.helper("_hf_part"), b.opening, i, len(b.targets))
	}
	return out.String()
}

// set handles {% set target = value %} and {% set target %}.
func (t *translator) set(seg segment) error {
	toks := seg.tokens[1:]
	eq := topLevel(toks, operator, "=")
	target := toks
	if eq >= 0 {
		target = toks[:eq]
	}
	attribute := len(target) == 3 && target[0].kind == name && target[1].is(operator, ".") && target[2].kind == name
	switch {
	case len(target) == 1 && target[0].kind == name:
		if err := t.assigned(target[0].text); err != nil {
			return err
		}
	case !attribute || eq < 0:
		return fmt.Errorf("unsupported assignment to %q", join(target))
	}
	to := strings.ReplaceAll(join(target), " ", "")
	value := t.expression(toks[min(eq+1, len(toks)):])
	switch {
	case eq < 0:
		err := t.open("set", seg.line)
		t.emit("{%%set %s%%}", to)
		return err
	case attribute && !isNumeric(toks[eq+1:]):
		value = fmt.Sprintf("%s(%s, %s, %s)", t.helper("_hf_stored"), target[0].text, quote(target[2].text), value)
	}
	t.emit("{%%set %s = %s%%}", to, value)
	return nil
}

// isNumeric reports whether toks is a constant without a size, or a sum such as "ns.turns + 1".
func isNumeric(toks []token) bool {
	n := len(toks)
	if n == 1 {
		return toks[0].kind != str && constant(toks)
	}
	return n > 2 && toks[n-1].kind == number && (toks[n-2].is(operator, "+") || toks[n-2].is(operator, "-")) &&
		!slices.ContainsFunc(toks[:n-2], func(tok token) bool {
			return tok.kind != name && !tok.is(operator, ".") || slices.Contains(keywords, tok.text)
		})
}

// assigned records that the innermost loop sets v, if the assignment is in its body.
func (t *translator) assigned(v string) error {
	for i, b := range slices.Backward(t.blocks) {
		switch {
		case b.kind == "macro" || b.kind == "call":
			return nil
		case b.kind == "for" && !b.inElse:
			if !slices.Contains(b.sets, v) {
				t.blocks[i].sets = append(b.sets, v)
			}
			if len(b.sets) > maxTargets {
				return fmt.Errorf("%w: a loop sets more than %d variables", ErrLimit, maxTargets)
			}
			return nil
		}
	}
	return nil
}

// signature handles the name and parameters of a macro. The library splits parameters at every
// comma, so a default must not contain commas.
func (t *translator) signature(toks []token) string {
	depth := 0
	var out, value []token // value is the current default
	for i, tok := range toks {
		if tok.kind == operator {
			depth += depthChange(tok.text)
		}
		ends := depth == 1 && tok.is(operator, ",") || depth == 0 && i == len(toks)-1
		switch {
		case depth == 1 && tok.is(operator, "="):
			out, value = append(out, tok), []token{}
		case ends:
			out, value = append(append(out, t.macroDefault(value)...), tok), nil
		case value != nil:
			value = append(value, tok)
		default:
			out = append(out, tok)
		}
	}
	return join(t.replace(out))
}

func (t *translator) macroDefault(value []token) []token {
	if len(value) == 1 && value[0].kind == str {
		id := fmt.Sprintf("_hf_const%d", len(t.consts))
		t.consts[id] = value[0].text
		return []token{{name, id}}
	}
	calls := false
	for _, tok := range value {
		calls = calls || tok.is(operator, "(")
		if tok.is(operator, ",") || tok.kind == str && strings.Contains(tok.text, ",") || tok.is(operator, "*") || tok.is(operator, ":") {
			return []token{{name, t.helper("_hf_unsupported")}, {operator, "("}, {str, "a macro default with a comma, a product or a slice"}, {operator, ")"}}
		}
	}
	if calls { // a default that calls its own macro has no end
		return slices.Concat([]token{{name, t.helper("_hf_leave")}, {operator, "("}}, value,
			[]token{{name, "if"}, {name, t.helper("_hf_enter")}, {operator, "("}, {number, strconv.Itoa(t.cost(cost{}))}, {operator, ")"},
				{name, "is"}, {name, "string"}, {operator, ")"}})
	}
	return value
}

// topLevel returns the index of a token outside of all brackets, or -1.
func topLevel(toks []token, kind tokenKind, text string) int {
	depth := 0
	for i, tok := range toks {
		if depth == 0 && tok.is(kind, text) {
			return i
		}
		if tok.kind == operator {
			depth += depthChange(tok.text)
		}
	}
	return -1
}

func depthChange(op string) int {
	switch op {
	case "(", "[", "{":
		return 1
	case ")", "]", "}":
		return -1
	}
	return 0
}

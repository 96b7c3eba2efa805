// Package guide constrains an answer to a form: JSON that is valid under a schema, or a text that
// matches an expression, with fixed text around it. A form may also have several parts. A part in
// which anything may stand, such as reasoning, may precede the form.
//
// A Guide is compiled from whence.llm.v1.Guide; a Cache compiles guides apart from the batch loop,
// and keeps them for later requests. A Matcher follows one answer token by token, and returns the
// allowed next tokens: those with which the answer can still become one of the forms. When few
// tokens are left, it allows only tokens with which the answer can still be finished, so that an
// answer is complete unless its limit was too small from the start.
//
// Package grammar is the automaton, and package schema compiles JSON Schemas for it. Most states
// allow few tokens, which are found by walking the vocabulary as a trie. A state within a string, or
// within free text, allows most tokens. Their part within the string does not depend on what follows
// it, so it is found once for each state of the string's DFA (a table), and only the tokens that
// leave the string are looked for in each state. Package pattern compiles regular expressions to
// such DFAs.
//
// Guides come from requests, and all streams wait for a matcher, so the size of a guide, the stacks
// of a state, and the cost of finding its tokens are bounded. An answer with too many possible
// positions is followed in some of them.
//
// The output is valid under the schema, but not every valid text can be generated. Objects have the
// properties that their schema names, in its order, and other properties only if it names none.
// White space is at most one space, after a comma or a colon. Numbers have at most 15 digits before
// and after the point together, and no exponents; within that, bounds are exact. Strings have no \u
// escapes, and no unnecessary ones. A keyword that cannot be enforced is refused by name and place;
// title and similar annotations are ignored.
package guide

import (
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/guide/grammar"
	"github.com/whence-dev/whence/llm-worker/guide/pattern"
	"github.com/whence-dev/whence/llm-worker/guide/schema"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Guide is the set of allowed answers. It is immutable.
type Guide struct {
	vocabulary *Vocabulary
	root       *grammar.Symbol
	tables     tables // of its DFAs
	size       int    // approximate number of bytes in memory
}

// Limits on requests.
const (
	maxForms   = 256
	maxText    = 4096    // bytes before or behind a value
	maxSchema  = 1 << 16 // bytes
	maxSchemas = 1 << 18 // bytes of all schemas together
	maxFree    = 256     // bytes of free_until, and of the text after a part that is anything
	maxParts   = 1024    // of all forms together
)

const param = "sampling.guide"

// New compiles a guide for answers of the vocabulary. Its errors are *streamerr.Error.
func New(v *Vocabulary, g *llmv1.Guide) (*Guide, error) {
	if v == nil {
		return nil, streamerr.InvalidParam(param, "this model's vocabulary does not cover all bytes, so its answers cannot be guided")
	}
	root, err := compile(g)
	if err != nil {
		return nil, err
	}
	parts := grammar.Survey(root)
	if parts.Lacks(&v.alone) {
		return nil, streamerr.InvalidParam(param, "the guide has a character for which this model has no token")
	}
	if err := measure(root); err != nil {
		return nil, err
	}
	made := &Guide{vocabulary: v, root: root, size: parts.Size()}
	made.tables = v.newTables(parts.DFAs)
	for _, t := range made.tables {
		made.size += t.size
	}
	return made, nil
}

// GBNF returns the grammar of a guide's answers in the notation of llama.cpp, which enforces guides
// itself. Its errors are *streamerr.Error.
func GBNF(g *llmv1.Guide) (string, error) {
	root, err := compile(g)
	if err != nil {
		return "", err
	}
	if err := measure(root); err != nil {
		return "", err
	}
	text, err := grammar.GBNF(root)
	if err != nil {
		return "", streamerr.InvalidParam(param, "the guide cannot be enforced by llama.cpp: %v", err)
	}
	return text, nil
}

// measure measures the grammar of a guide, and refuses one without answers.
func measure(root *grammar.Symbol) error {
	if grammar.Measure(root).Need() >= grammar.Endless {
		return streamerr.InvalidParam(param, "the guide's schema cannot be enforced: no value is valid under it")
	}
	return nil
}

// compile returns the grammar of a guide's answers.
func compile(g *llmv1.Guide) (*grammar.Symbol, error) {
	if n := len(g.GetForms()); n == 0 || n > maxForms {
		return nil, streamerr.InvalidParam(param, "a guide must have 1 to %d forms, not %d", maxForms, n)
	}
	c := &compiler{schemas: schema.NewCompiler(), patterns: pattern.NewBudget(), free: map[string]*grammar.DFA{}}
	var forms []*grammar.Symbol
	for _, form := range g.GetForms() {
		made, err := c.form(form)
		if err != nil {
			return nil, err
		}
		forms = append(forms, made)
	}
	root := grammar.Choice(forms...)
	if g.GetFreeUntil() == "" {
		return root, nil
	}
	if err := c.check(g.GetFreeFrom(), g.GetFreeGap(), ""); err != nil {
		return nil, err
	}
	free, err := c.until(g.GetFreeUntil())
	if err != nil {
		return nil, err
	}
	first := grammar.Sequence(grammar.Literal(g.GetFreeFrom()), free, grammar.Literal(g.GetFreeGap()), root)
	if g.GetFreeFrom() != "" {
		return grammar.Choice(root, first), nil
	}
	return first, nil
}

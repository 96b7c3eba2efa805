package reasoning

import (
	"regexp"
	"slices"
	"strings"
)

// A Form is a way to mark reasoning that models were trained on.
type Form struct {
	Name string
	// Open and Close are the tags around the reasoning.
	Open, Close string
	// Before lists texts that may precede the answer proper, and After those that may follow it. They
	// belong to no part.
	Before, After []string
	// Gap is the white space that the model writes between Close and the answer.
	Gap string

	tokens []string // tokens that show the form; nil for the tags
	guess  bool     // nothing shows the form, so that only an answer that begins with Open has it
}

// Guess is the form of models that nothing is known of.
var Guess = &Form{Name: "guess", Open: "<think>", Close: "</think>", Gap: defaultGap, guess: true}

const defaultGap = "\n\n"

// forms are the known forms. A form whose tags others contain follows them. Forms of one name are of
// one model, which marks reasoning of each effort in another one.
var forms = []Form{
	{Name: "gemma", Open: "<|channel>thought", Close: "<channel|>", tokens: []string{"<|channel>", "<channel|>"}},
	{
		Name: "kimi-k3", Open: "<|open|>think<|sep|>", Close: "<|close|>think<|sep|>",
		Before: []string{"<|open|>response<|sep|>"}, After: []string{"<|close|>response<|sep|>", "<|close|>message<|sep|>"},
		tokens: []string{"<|open|>", "<|close|>", "<|sep|>"},
	},
	{
		Name: "inkling", Open: "<|content_thinking|>", Close: "<|end_message|>",
		Before: []string{"<|message_model|>", "<|content_text|>"}, After: []string{"<|end_message|>", "<|content_model_end_sampling|>"},
	},
	{
		Name: "solar", Open: "<|think|>", Close: "<|end|>", Before: []string{"<|begin|>assistant", "<|content|>"}, After: []string{"<|end|>"},
		tokens: []string{"<|think|>", "<|end|>", "<|begin|>", "<|content|>"},
	},
	{Name: "solar2", Open: "<|think:start|>", Close: "<|think:end|>"},
	{
		Name: "cohere", Open: "<|START_THINKING|>", Close: "<|END_THINKING|>",
		Before: []string{"<|START_RESPONSE|>", "<|START_TEXT|>"}, After: []string{"<|END_RESPONSE|>", "<|END_TEXT|>"},
	},
	{Name: "apertus", Open: "<|inner_prefix|>", Close: "<|inner_suffix|>"},
	{Name: "kimi", Open: "◁think▷", Close: "◁/think▷"},
	{Name: "mistral", Open: "[THINK]", Close: "[/THINK]"},
	{Name: "seed", Open: "<seed:think>", Close: "</seed:think>"},
	{Name: "minimax", Open: "<mm:think>", Close: "</mm:think>"},
	{Name: "hunyuan", Open: "<think:opensource>", Close: "</think:opensource>"},
	{Name: "longcat", Open: "<longcat_think>", Close: "</longcat_think>"},
	{Name: "ifm", Open: "<ifm|think>", Close: "</ifm|think>"},
	{Name: "ifm", Open: "<ifm|think_fast>", Close: "</ifm|think_fast>"},
	{Name: "ifm", Open: "<ifm|think_faster>", Close: "</ifm|think_faster>"},
	{Name: "plamo", Open: "<|plamo:begin_think:plamo|>", Close: "<|plamo:end_think:plamo|>"},
	{Name: "pangu", Open: "[unused16]", Close: "[unused17]"},
	{Name: "apriel", Open: "Here are my reasoning steps:", Close: "[BEGIN FINAL RESPONSE]", After: []string{"[END FINAL RESPONSE]"}},
	{Name: "granite", Open: "Here is my thought process:", Close: "Here is my response:"},
	{Name: "thinking", Open: "<thinking>", Close: "</thinking>"},
	{Name: "thought", Open: "<thought>", Close: "</thought>"},
	{Name: "think", Open: "<think>", Close: "</think>"},
}

// wrappers are the tags in which some models of the form "think" write their answers.
var wrappers = [][2]string{{"<response>", "</response>"}, {"<answer>", "</answer>"}}

// Evidence is what is known of how a model marks its reasoning.
type Evidence struct {
	// Turn is a turn with reasoning as the chat template writes it; "" if it writes no reasoning.
	// Thought is the reasoning in it.
	Turn, Thought string
	// Prompts are prompts of a short conversation, with reasoning switched on and off.
	Prompts []string
	// HasToken reports whether a text is a token of the model.
	HasToken func(text string) bool
	// Source is the source of the template.
	Source string
}

// Detect returns the form in which a model marks its reasoning. What the template renders decides,
// then the tokens of the model, and the source of the template last.
func Detect(e Evidence) *Form {
	found := e.find()
	if found == nil {
		return Guess
	}
	if found.Gap = ""; strings.HasPrefix(found.Close, "</") {
		found.Gap = defaultGap
	}
	_, turn, written := strings.Cut(e.Turn, e.Thought)
	_, rest, closed := strings.Cut(turn, found.Close)
	written = written && closed
	if written {
		found.Gap = rest[:len(rest)-len(strings.TrimLeft(rest, space))]
	}
	for _, w := range wrappers {
		if len(found.Before) > 0 {
			break
		}
		wraps := func(text string) bool { return strings.Contains(text, w[0]) && strings.Contains(text, w[1]) }
		if written && strings.HasPrefix(rest[len(found.Gap):], w[0]) ||
			!written && (e.HasToken(w[0]) && e.HasToken(w[1]) || wraps(e.Source) || slices.ContainsFunc(e.Prompts, wraps)) {
			found.Before, found.After = []string{w[0]}, []string{w[1]}
		}
	}
	return found
}

// find returns a copy of the form that fits best.
func (e *Evidence) find() *Form {
	for i, fits := range []func(*Form) bool{e.inTurn, e.atEnd, e.inPrompt, e.inVocabulary, e.inSource} {
		for _, f := range forms {
			if fits(&f) {
				return &f
			}
		}
		if i > 0 {
			continue
		}
		if tags := tagged.FindStringSubmatch(strings.Replace(e.Turn, e.Thought, thoughtMark, 1)); tags != nil {
			return &Form{Name: "tags", Open: tags[1], Close: tags[2]}
		}
	}
	return nil
}

// tagged matches reasoning, for which thoughtMark stands, in tags of an unknown form.
var tagged = regexp.MustCompile(`([<\[◁][^<>\[\]◁▷\s]+[>\]▷])\s*` + thoughtMark + `\s*([<\[◁][^<>\[\]◁▷\s]+[>\]▷])`)

const thoughtMark = "\x00"

func (e *Evidence) inTurn(f *Form) bool {
	before, after, written := strings.Cut(e.Turn, e.Thought)
	return written && strings.HasSuffix(strings.TrimRight(before, space), f.Open) && strings.HasPrefix(strings.TrimLeft(after, space), f.Close)
}

// atEnd reports whether a prompt ends within reasoning, or after reasoning that was left out.
func (e *Evidence) atEnd(f *Form) bool {
	return slices.ContainsFunc(e.Prompts, func(prompt string) bool {
		return f.Opened(prompt) || f.Closed(prompt) && (strings.HasPrefix(f.Close, "</") || strings.Contains(prompt, f.Open))
	})
}

// inPrompt reports whether a prompt describes the form.
func (e *Evidence) inPrompt(f *Form) bool {
	return slices.ContainsFunc(e.Prompts, func(prompt string) bool {
		return strings.Contains(prompt, f.Open) && strings.Contains(prompt, f.Close)
	})
}

func (e *Evidence) inVocabulary(f *Form) bool {
	tokens := f.tokens
	if tokens == nil {
		tokens = []string{f.Open, f.Close}
	}
	return !slices.ContainsFunc(tokens, func(token string) bool { return !e.HasToken(token) })
}

// inSource reports whether the template removes reasoning in this form from earlier turns, or
// mentions both tags. Some templates know only the closing tag.
func (e *Evidence) inSource(f *Form) bool {
	return strings.Contains(e.Source, f.Close) && (strings.Contains(e.Source, f.Open) || strings.HasPrefix(f.Close, "</"))
}

// In returns the form, of those of the model, that a prompt ends within; the form itself if it is none.
func (f *Form) In(prompt string) *Form {
	for _, other := range f.Variants() {
		if other.Opened(prompt) {
			return other
		}
	}
	return f
}

// Variants returns all forms of the model.
func (f *Form) Variants() []*Form {
	all := []*Form{f}
	for i := range forms {
		if forms[i].Name == f.Name && forms[i].Open != f.Open {
			all = append(all, &forms[i])
		}
	}
	return all
}

// Closed reports whether a prompt ends after reasoning, which was left out.
func (f *Form) Closed(prompt string) bool {
	return strings.HasSuffix(strings.TrimRight(prompt, space), f.Close)
}

// Opened reports whether a prompt ends within reasoning.
func (f *Form) Opened(prompt string) bool {
	return strings.HasSuffix(strings.TrimRight(prompt, space), f.Open)
}

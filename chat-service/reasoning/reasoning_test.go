package reasoning

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// split processes an answer in pieces of the given lengths; the last piece has the rest.
func split(f *Form, opts Options, answer string, lengths ...int) (thought, text string) {
	var a, b strings.Builder
	s := New(f, opts, func(thought string, _ bool) bool {
		a.WriteString(thought)
		return false
	})
	add := func(thought, text string) {
		a.WriteString(thought)
		b.WriteString(text)
	}
	for _, n := range append(lengths, len(answer)) {
		n = min(n, len(answer))
		add(s.Text(s.Next(answer[:n])))
		answer = answer[n:]
	}
	add(s.Text(s.End()))
	add(s.EndText())
	return a.String(), b.String()
}

// named returns the form of this name.
func named(name string) *Form {
	return &forms[slices.IndexFunc(forms, func(f Form) bool { return f.Name == name })]
}

var (
	think   = named("think")
	wrapped = &Form{Open: "<think>", Close: "</think>", Before: []string{"<response>"}, After: []string{"</response>"}}
)

var answers = []struct {
	form                  *Form
	opts                  Options
	answer, thought, text string
}{
	{think, Options{}, "hello", "", "hello"},
	{think, Options{}, "", "", ""},
	{think, Options{}, " \n", "", " \n"},
	{think, Options{}, "<think>\nhm\n\nso\n</think>\n\nyes\n", "hm\n\nso", "yes\n"},
	{think, Options{}, "\n<think>hm</think>yes", "hm", "yes"},
	{think, Options{}, "<think>\n\n</think>\n\nyes", "", "yes"},
	{think, Options{}, "I write <think>", "", "I write <think>"},
	{think, Options{}, "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"},
	{think, Options{}, "<thin", "", "<thin"},
	{think, Options{}, "<think>cut short", "cut short", ""},
	{think, Options{}, "</think>\n\na</think>", "", "a</think>"},
	{think, Options{Opened: true}, "hm\n</think>\n\nyes", "hm", "yes"},
	{think, Options{Opened: true}, "a < b </thin king </think>c", "a < b </thin king", "c"},
	{think, Options{Opened: true}, "cut </th", "cut </th", ""},
	{think, Options{Opened: true}, "</think>yes", "", "yes"},
	{think, Options{Opened: true}, "\n<think>\nhm <think>\n</think>yes", "hm <think>", "yes"},
	{think, Options{Opened: true}, "<thi", "<thi", ""},
	{think, Options{Opened: true}, "hm" + strings.Repeat("\n", maxSpace+2) + "</think>yes", "hm\n\n", "yes"},
	{think, Options{Special: true}, "<think>17*23=391</think>391", "17*23=391", "391"},
	{think, Options{Special: true}, "a <think>b</think> c<think></think></think>\nd", "b", "a c" + "d"},
	{think, Options{Special: true}, "<think>a</think>b\n<think>c </think>d", "a\n\nc ", "b\nd"},
	{wrapped, Options{}, "<think>a</think>\n<response>\nb </response> c\n</response>\n", "a", "b </response> c"},
	{wrapped, Options{}, "<think>a</think><response>b</response>" + strings.Repeat(" ", maxSpace+1), "a", "b</response>" + strings.Repeat(" ", maxSpace+1)},
	{wrapped, Options{}, "<think>a</think>b</response>", "a", "b</response>"},
	{wrapped, Options{}, "<think>a</think><response>b \n", "a", "b \n"},
	{named("gemma"), Options{Special: true, Hidden: []string{"<|channel>", "<channel|>"}}, "<|channel>thought\nplan\n<channel|>Hi<|channel>", "plan", "Hi"},
	{named("gemma"), Options{Special: true}, "<|channel>thought\n<channel|>Hi", "", "Hi"},
	{named("mistral"), Options{Special: true}, "[THINK]a[/THINK]b", "a", "b"},
	{named("cohere"), Options{Special: true}, "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>b<|END_RESPONSE|>", "a", "b"},
	{named("cohere"), Options{}, "<|START_RESPONSE|>b<|END_RESPONSE|>", "", "b"},
	{named("kimi-k3"), Options{Special: true}, "<|open|>think<|sep|>a<|close|>think<|sep|><|open|>response<|sep|>b<|close|>response<|sep|><|close|>message<|sep|>", "a", "b"},
	{named("kimi-k3"), Options{Opened: true}, "a<|close|>think<|sep|><|open|>response<|sep|>b<|close|>response<|sep|>", "a", "b"},
	{named("solar"), Options{Special: true, Hidden: []string{"<|begin|>"}}, "<|think|>a<|end|><|begin|>assistant<|content|>b<|end|>", "a", "b"},
	{named("inkling"), Options{Special: true}, "<|message_model|><|content_thinking|>a<|end_message|><|message_model|><|content_text|>b<|end_message|>", "a", "b"},
	{named("apriel"), Options{Opened: true}, "1. a\n[BEGIN FINAL RESPONSE]\nb\n[END FINAL RESPONSE]\n", "1. a", "b"},
	{Guess, Options{}, "<think>a</think>\nb", "a", "b"},
	{Guess, Options{}, "\n<think>a", "", "\n<think>a"},
	{named("minimax"), Options{}, "</mm:think>\nb", "", "b"},
}

func TestReasoningIsSeparatedForAnyPieces(t *testing.T) {
	for _, c := range answers {
		check := func(lengths ...int) {
			t.Helper()
			if thought, text := split(c.form, c.opts, c.answer, lengths...); thought != c.thought || text != c.text {
				t.Fatalf("%q in pieces of %v: thought %q, text %q; want %q, %q", c.answer, lengths, thought, text, c.thought, c.text)
			}
		}
		for at := range len(c.answer) {
			check(at)
		}
		check(slices.Repeat([]int{1}, len(c.answer))...)
	}
}

func TestFormsAreDetected(t *testing.T) {
	tokens := func(all ...string) func(string) bool {
		return func(text string) bool { return slices.Contains(all, text) }
	}
	for name, c := range map[string]struct {
		evidence Evidence
		want     *Form
	}{
		"nothing":          {Evidence{Prompts: []string{"<a>Hi"}}, Guess},
		"a turn":           {Evidence{Turn: "[a]<think>\nX\n</think>\n\nyes"}, &Form{Open: "<think>", Close: "</think>", Gap: "\n\n"}},
		"a turn with tags": {Evidence{Turn: "[a]<x:thoughts>X</x:thoughts>yes", Source: "</think>"}, &Form{Open: "<x:thoughts>", Close: "</x:thoughts>"}},
		"two kinds of tags": {
			Evidence{Turn: "[THINK]X[/THINK]yes", HasToken: tokens("<think>", "</think>")}, &Form{Open: "[THINK]", Close: "[/THINK]"},
		},
		"a wrapped answer": {
			Evidence{Turn: "<think>X</think>\n<response>\nyes\n</response>"},
			&Form{Open: "<think>", Close: "</think>", Gap: "\n", Before: []string{"<response>"}, After: []string{"</response>"}},
		},
		"a source with the tags of answers": {
			Evidence{Source: "<think></think><answer></answer>"},
			&Form{Open: "<think>", Close: "</think>", Gap: "\n\n", Before: []string{"<answer>"}, After: []string{"</answer>"}},
		},
		"results in the tags of answers": {
			Evidence{Turn: "<think>X</think>yes", Source: "<response></response>"}, &Form{Open: "<think>", Close: "</think>"},
		},
		"a prompt within reasoning": {Evidence{Prompts: []string{"Hi<seed:think>\n"}}, &Form{Open: "<seed:think>", Close: "</seed:think>", Gap: "\n\n"}},
		"a prompt after reasoning":  {Evidence{Prompts: []string{"Hi<a>", "Hi<a></think>"}}, &Form{Open: "<think>", Close: "</think>", Gap: "\n\n"}},
		"a prompt that describes it": {
			Evidence{Prompts: []string{"Write between <think></think> and <response></response>. Hi"}},
			&Form{Open: "<think>", Close: "</think>", Gap: "\n\n", Before: []string{"<response>"}, After: []string{"</response>"}},
		},
		"tokens":         {Evidence{HasToken: tokens("<|channel>", "<channel|>"), Source: "</think>"}, &Form{Open: "<|channel>thought", Close: "<channel|>"}},
		"one token":      {Evidence{HasToken: tokens("<|channel>", "<|think|>", "<|end|>")}, Guess},
		"the source":     {Evidence{Source: "content.split('</think>')"}, &Form{Open: "<think>", Close: "</think>", Gap: "\n\n"}},
		"another source": {Evidence{Source: "<|message|><|end|>"}, Guess},
	} {
		c.evidence.Thought = "X"
		if c.evidence.HasToken == nil {
			c.evidence.HasToken = tokens()
		}
		got := Detect(c.evidence)
		if got.guess != c.want.guess || got.Open != c.want.Open || got.Close != c.want.Close || got.Gap != c.want.Gap || !slices.Equal(got.Before, c.want.Before) || !slices.Equal(got.After, c.want.After) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestFormsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/reasoning.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range forms {
		for _, tag := range []string{f.Open, f.Close} {
			spelled := "`" + strings.ReplaceAll(tag, "|", `\|`) + "`"
			if !strings.Contains(tag, "ifm|think_") && !strings.Contains(string(page), spelled) {
				t.Errorf("docs/reference/reasoning.md lacks %s", spelled)
			}
		}
	}
}

func TestPromptDecidesBetweenTheFormsOfAModel(t *testing.T) {
	one := named("ifm")
	if got := one.In("Hi<ifm|think_fast>\n"); got.Close != "</ifm|think_fast>" {
		t.Errorf("%+v", got)
	}
	for _, prompt := range []string{"Hi", "<think>", "<ifm|think>"} {
		if got := one.In(prompt); got != one {
			t.Errorf("%s: %+v", prompt, got)
		}
	}
}

func TestEndlessWhiteSpaceIsNotHeldBack(t *testing.T) {
	thought := 0
	s := New(think, Options{Opened: true}, func(piece string, _ bool) bool {
		thought += len(piece)
		return false
	})
	s.Next("hm")
	for i := range 10 * maxSpace {
		s.Next("\n")
		if held := i + len("hm\n") - thought; held > maxSpace {
			t.Fatalf("%d bytes are held back", held)
		}
	}
}

func FuzzPiecesGiveTheSameResult(f *testing.F) {
	for i, c := range answers {
		f.Add(i, c.answer, uint64(1))
	}
	f.Fuzz(func(t *testing.T, which int, answer string, seed uint64) {
		c := answers[uint(which)%uint(len(answers))] //nolint:gosec // any will do
		wantThought, wantText := split(c.form, c.opts, answer)
		r := rand.New(rand.NewPCG(seed, 1))
		var lengths []int
		for range len(answer) {
			lengths = append(lengths, 1+r.IntN(9))
		}
		thought, text := split(c.form, c.opts, answer, lengths...)
		if thought != wantThought || text != wantText {
			t.Errorf("%q: thought %q, text %q; whole %q, %q", answer, thought, text, wantThought, wantText)
		}
	})
}

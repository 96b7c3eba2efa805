package toolcall

import (
	"slices"
	"strings"
	"testing"
)

// A transcript is a model's answer in its own form.
type transcript struct {
	format *Format
	text   string
	want   answer
}

// TestTranscriptsAreReadAtEveryCut checks that the answers of the families give the same events as a
// whole, cut at any byte, and byte by byte.
func TestTranscriptsAreReadAtEveryCut(t *testing.T) {
	for _, c := range slices.Concat(transcripts, tagTranscripts) {
		check := func(how string, step func() int) {
			t.Helper()
			if got := read(t, c.format, c.text, step); got.String() != c.want.String() {
				t.Errorf("%s, %s: %s\n got %v\nwant %v", c.format.Name, how, c.text, got, c.want)
			}
		}
		check("whole", func() int { return max(1, len(c.text)) })
		check("by bytes", func() int { return 1 })
		for at := 1; at < len(c.text); at++ {
			first := at
			check("in two pieces", func() int { n := first; first = len(c.text); return n })
		}
	}
}

var transcripts = []transcript{
	{Kimi, "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|><|tool_call_begin|>functions.f:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
		answer{text: "I look.", calls: []call{{"get_weather", `{"city": "Paris"}`, "functions.get_weather:0"}, {"f", "{}", "functions.f:1"}}}},
	{Kimi, "<|tool_call_section_begin|> <|tool_call_begin|> get_weather:3 <|tool_call_argument_begin|> {\"a\": [1]} <|tool_call_end|> <|tool_call_section_end|> Done.",
		answer{text: " Done.", calls: []call{{"get_weather", `{"a": [1]}`, "get_weather:3"}}}},
	{Kimi, "<|tool_call_begin|>f<|tool_call_argument_begin|><|tool_call_end|>", answer{calls: calls("f", "{}")}},
	{Kimi, "<|tool_call_begin|>f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>f:0<|tool_call_argument_begin|>{}", // an id is kept once
		answer{calls: []call{{"f", "{}", "f:0"}, {"f", "{}", ""}}}},
	{Kimi, "<|tool_call_begin|>functions.nobody:0<|tool_call_argument_begin|>{}<|tool_call_end|>", answer{text: "<|tool_call_begin|>functions.nobody:0<|tool_call_argument_begin|>{}<|tool_call_end|>"}},
	{Kimi, "The marker <|tool_calls_section_begin|> begins calls.", answer{text: "The marker <|tool_calls_section_begin|> begins calls."}},

	{Gemma, "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:2,deep:true}<tool_call|><|tool_call>call:f{}<tool_call|>", answer{calls: calls("get_weather", `{"city": "Paris", "days": 2, "deep": true}`, "f", "{}")}},
	{Gemma, "Sure.\n<|tool_call>call:f{a:{b:[1,None,<|\"|>it's \"q\"\n<|\"|>]},s:12,o:null}<tool_call|> ok", answer{text: "Sure. ok", calls: calls("f", `{"a": {"b": [1, null, "it's \"q\"\n"]}, "s": "12", "o": null}`)}},
	{Gemma, "<|tool_call>call:f{a:<|\"|>cut o", answer{calls: calls("f", `{"a": "cut o`)}},
	{Gemma, "<|tool_call>call:nobody{}<tool_call|>", answer{text: "<|tool_call>call:nobody{}<tool_call|>"}},
	{Gemma, "A call begins with <|tool_call>.", answer{text: "A call begins with <|tool_call>."}},
	{FunctionGemma, "<start_function_call>call:get_weather{city:<escape>New York<escape>, n:2}<end_function_call>", answer{calls: calls("get_weather", `{"city": "New York", "n": 2}`)}},
}

// TestHostileAnswersOfFamiliesAreHeldBackWithinBounds sends beginnings of each family's calls without
// end.
func TestHostileAnswersOfFamiliesAreHeldBackWithinBounds(t *testing.T) {
	const n = 4 * maxHead
	for _, c := range slices.Concat(transcripts, tagTranscripts) {
		for at := range len(c.text) {
			if at%7 != 0 && at > 40 {
				continue
			}
			for _, filler := range []string{"x", " ", "[", "'", "\\", "("} {
				p := New(c.format, known, takes, c.format.Markers, func(Event) {})
				p.Next(c.text[:at])
				for range n / 512 {
					p.Next(strings.Repeat(filler, 512))
					if held := len(p.buf) + len(p.raw); held > 2*maxHead {
						t.Fatalf("%s: %d bytes are held back after %s%s", c.format.Name, held, c.text[:at], filler)
					}
				}
			}
		}
	}
}

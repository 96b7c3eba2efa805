package toolcall

import (
	"regexp"
	"strings"
)

// Gemma is the format of Gemma 4. Text has quotes of its own, and keys have none:
//
//	<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:2}<tool_call|>
var Gemma = gemma("gemma", "<|tool_call>", "<tool_call|>", `<|"|>`)

// FunctionGemma is the format of FunctionGemma, which has the same form with other tags.
var FunctionGemma = gemma("functiongemma", "<start_function_call>", "<end_function_call>", "<escape>")

const gemmaCall = "call:"

// gemma returns a format with tags around a call, and a quote around text.
func gemma(name, open, end, quote string) *Format {
	f := tagged(name, regexp.QuoteMeta(open), tags{
		open: []string{open}, close: []string{end}, other: func(t *tags) state { return gemmaHead(t, quote) },
	}, func(tool string) (string, string) { return open + gemmaCall + tool, end })
	f.Markers = append(f.Markers, quote)
	return f
}

// gemmaHead follows the opening tag.
func gemmaHead(t *tags, quote string) state {
	return func(p *Parser) bool {
		head, w := p.head("{")
		if w != there {
			return w == differs && p.backToText(t.text)
		}
		name := strings.TrimPrefix(strings.TrimSpace(head), gemmaCall) // some calls lack it
		if name = p.tool(strings.TrimSpace(name)); name == "" {
			return p.backToText(t.text)
		}
		name = strings.Clone(name)
		p.begin(name)
		p.buf = p.buf[len(head):]
		p.state = p.literal(&literal{quote: quote, takes: func(key string) Value { return p.takes(name, key) }}, t.closing, t.text)
		return true
	}
}

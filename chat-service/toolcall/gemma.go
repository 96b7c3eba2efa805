package toolcall

import (
	"regexp"
	"strings"
)

// Gemma is the format of Gemma 4. Text has quotes of its own, and keys have none:
//
//	<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:2}<tool_call|>
var Gemma = gemma("gemma", gemmaTags{open: "<|tool_call>", close: "<tool_call|>", quote: `<|"|>`})

// FunctionGemma is the format of FunctionGemma, which has the same form with other tags.
var FunctionGemma = gemma("functiongemma", gemmaTags{open: "<start_function_call>", close: "<end_function_call>", quote: "<escape>"})

// gemmaTags are the tags around a call, and the quote around text.
type gemmaTags struct{ open, close, quote string }

const gemmaCall = "call:"

func gemma(name string, t gemmaTags) *Format {
	return &Format{
		Name: name, Markers: []string{t.open, t.close, t.quote}, begin: t.text, opens: []string{t.open}, id: longID,
		detect: regexp.MustCompile(regexp.QuoteMeta(t.open)),
		around: func(tool string) (string, string) { return t.open + gemmaCall + tool, t.close },
	}
}

func (t gemmaTags) text(p *Parser) bool {
	if p.until(t.open) < 0 {
		return false
	}
	p.state = t.head
	return true
}

// head follows the opening tag.
func (t gemmaTags) head(p *Parser) bool {
	head, w := p.head("{")
	if w != there {
		return w == differs && p.backToText(t.text)
	}
	name, ok := strings.CutPrefix(strings.TrimSpace(head), gemmaCall)
	if name = p.tool(strings.TrimSpace(name)); !ok || name == "" {
		return p.backToText(t.text)
	}
	name = strings.Clone(name)
	p.begin(name)
	p.buf = p.buf[len(head):]
	p.state = p.literal(&literal{quote: t.quote, takes: func(key string) Value { return p.takes(name, key) }}, t.tail, t.text)
	return true
}

// tail looks for the closing tag. A call without a closing tag is still a call.
func (t gemmaTags) tail(p *Parser) bool {
	p.skipSpace()
	switch p.prefix(t.close) {
	case unsure:
		return false
	case there:
		p.raw, p.buf = "", p.buf[len(t.close):]
	case differs:
	}
	return p.backToText(t.text)
}

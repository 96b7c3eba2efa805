package toolcall

import (
	"regexp"
	"strings"
)

const (
	harmonyChannel   = "<|channel|>"
	harmonyConstrain = "<|constrain|>"
	harmonyTools     = "functions."
)

// Harmony is the format of GPT-OSS: the whole answer consists of messages in channels.
var Harmony = &Format{
	Name: "harmony", Thinks: true, begin: harmony.begin, id: longID,
	Markers: []string{messageStart, harmonyChannel, harmonyConstrain, messageBody, "<|end|>", "<|call|>", "<|return|>"},
	Answer:  harmonyChannel + "final" + messageBody,
	Thought: struct{ Open, Close, Gap string }{harmonyChannel + "analysis" + messageBody, "<|end|>", messageStart + "assistant"},
	detect:  regexp.MustCompile(`<\|channel\|>`),
	around: func(tool string) (string, string) {
		return " to=" + harmonyTools + tool + harmonyChannel + "commentary json" + messageBody, "" // engines end an answer at "<|call|>"
	},
}

var harmony = &messages{
	begins:  []string{harmonyChannel, " to="},
	ends:    []string{"<|end|>", "<|call|>", "<|return|>", messageStart, harmonyChannel},
	address: harmonyAddress,
}

// harmonyAddress begins a call if the recipient is a tool.
func harmonyAddress(p *Parser, header string) (Kind, state) {
	if _, to, ok := strings.Cut(header, "to="+harmonyTools); ok {
		name := to
		if i := strings.IndexAny(to, " \n<"); i >= 0 {
			name = to[:i]
		}
		if p.known(name) {
			p.begin(name)
			return Arguments, nil
		}
	}
	if _, channel, _ := strings.Cut(header, harmonyChannel); strings.HasPrefix(channel, "analysis") {
		return Reasoning, nil
	}
	return Text, nil
}

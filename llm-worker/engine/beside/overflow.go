package beside

import (
	"regexp"
	"strconv"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// overflows match the texts with which servers refuse a prompt that does not fit into the context:
// vLLM's of several releases, SGLang's, llama.cpp's, and OpenAI's. The groups "limit" and "tokens" are
// the sizes of the context and of the prompt.
var overflows = []*regexp.Regexp{
	regexp.MustCompile(`maximum context length is (?P<limit>\d+) tokens.*?you(?:r messages resulted in| requested) (?:\d+ tokens \()?(?P<tokens>\d+)`),
	regexp.MustCompile(`maximum context length is (?P<limit>\d+) tokens.*? (?P<tokens>\d+) input tokens`),
	regexp.MustCompile(`(?P<tokens>\d+) input tokens.*context length is only (?P<limit>\d+) tokens`),
	regexp.MustCompile(`prompt \(length (?P<tokens>\d+)\) is longer than the maximum model length of (?P<limit>\d+)`),
	regexp.MustCompile(`[Ii]nput (?:length )?\((?P<tokens>\d+) tokens\).*?(?:context|allowed) length \((?P<limit>\d+) tokens\)`),
	regexp.MustCompile(`request \((?P<tokens>\d+) tokens\) exceeds the available context size \((?P<limit>\d+) tokens\)`),
}

// overflow returns the sizes in the complaint, if it has them.
func (c *Complaint) overflow() (o streamerr.Overflow, ok bool) {
	if o, ok := streamerr.ParseOverflow(c.Message); ok {
		return o, true
	}
	for _, form := range overflows {
		if m := form.FindStringSubmatch(c.Message); m != nil {
			o.Tokens, _ = strconv.Atoi(m[form.SubexpIndex("tokens")]) // digits; the maximum if they overflow
			o.Limit, _ = strconv.Atoi(m[form.SubexpIndex("limit")])
			return o, true
		}
	}
	return o, false
}

// explainOverflow puts an ending about the context into the words for a prompt that does not fit. A
// complaint about the sum of the prompt and its answer loses its code, because a client that shortens
// the conversation would get the same complaint again.
func (c *Complaint) explainOverflow(e *streamerr.Error) {
	over, ok := c.overflow()
	switch {
	case !ok || e.Reason != streamerr.Invalid:
	case over.Tokens >= over.Limit:
		long := streamerr.TooLong("", over.Tokens, over.Limit)
		e.Message, e.Code = long.Message, long.Code
	case e.Code == streamerr.CodeContextLength:
		e.Code = ""
	}
}

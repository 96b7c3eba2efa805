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

// overflow returns the sizes in the complaint, if it is about a prompt that does not fit. A complaint
// about the sum of the prompt and its answer is not.
func (c *Complaint) overflow() (o streamerr.Overflow, ok bool) {
	if o, ok := streamerr.ParseOverflow(c.Message); ok {
		return o, true
	}
	for _, form := range overflows {
		if m := form.FindStringSubmatch(c.Message); m != nil {
			o.Tokens, _ = strconv.Atoi(m[form.SubexpIndex("tokens")]) // digits; 0 if they overflow
			o.Limit, _ = strconv.Atoi(m[form.SubexpIndex("limit")])
			return o, o.Limit > 0 && o.Tokens >= o.Limit
		}
	}
	return o, false
}

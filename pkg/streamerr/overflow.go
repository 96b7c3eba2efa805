package streamerr

import (
	"fmt"
	"regexp"
	"strconv"
)

// An Overflow says by how much a prompt exceeds a model's context.
type Overflow struct {
	Tokens int // of the prompt
	Limit  int // maximum number of tokens of the prompt and its answer
}

// TooLong returns the error for a prompt that does not fit into a context of limit tokens. param is
// the field with the prompt. The message has the words of OpenAI's API, which clients look for,
// because their SDKs show them nothing else. It carries the numbers across all hops.
func TooLong(param string, tokens, limit int) *Error {
	e := InvalidParam(param, "%s", Overflow{tokens, limit}.text())
	e.Code = CodeContextLength
	return e
}

func (o Overflow) text() string {
	return fmt.Sprintf("Input tokens exceed the configured limit of %d tokens. Your messages resulted in %d tokens. This model's maximum context length is %d tokens.",
		o.Limit, o.Tokens, o.Limit)
}

// overflowText matches the message of TooLong. The edge replaces the name of the field.
var overflowText = regexp.MustCompile(`Input tokens exceed the configured limit of (\d+) tokens\. Your \S+ resulted in (\d+) tokens\.`)

// ParseOverflow reads the numbers from a text that contains the message of TooLong.
func ParseOverflow(text string) (o Overflow, ok bool) {
	m := overflowText.FindStringSubmatch(text)
	if m == nil {
		return Overflow{}, false
	}
	limit, err1 := strconv.Atoi(m[1])
	tokens, err2 := strconv.Atoi(m[2])
	return Overflow{tokens, limit}, err1 == nil && err2 == nil
}

// Overflow returns the numbers of an error about the length of a prompt, if they are known.
func (e *Error) Overflow() (o Overflow, ok bool) {
	if e.Code != CodeContextLength {
		return Overflow{}, false
	}
	return ParseOverflow(e.Message)
}

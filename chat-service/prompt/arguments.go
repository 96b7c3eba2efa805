package prompt

import (
	"strings"

	"github.com/whence-dev/whence/chat-service/prompt/jinja"
)

// invalidArguments is the member that shows arguments that are no JSON object. Anthropic's
// documentation suggests the name.
const invalidArguments = "INVALID_JSON"

// objectOf returns the arguments of an earlier call as the JSON object that most templates expect, and
// its value. A model may be cut off in the middle of the arguments, and a model that is not guided may
// write anything: then the object has the model's text in one member.
func objectOf(arguments string) (text string, value *jinja.Dict) {
	arguments = textOf(arguments)
	value, err := readObject(arguments, true)
	if err == nil {
		return arguments, value
	}
	value = jinja.NewDict()
	value.Set(invalidArguments, arguments)
	return `{"` + invalidArguments + `": ` + quote(arguments) + "}", value
}

// textOf returns the text that the model wrote as arguments. Clients and other hops put a text that
// is no object into an object, too.
func textOf(arguments string) string {
	for strings.Contains(arguments, invalidArguments) {
		object, err := readObject(arguments, true)
		if err != nil || object.Len() != 1 {
			break
		}
		member, _ := object.Get(invalidArguments)
		inner, ok := member.(string)
		if !ok {
			break
		}
		arguments = inner
	}
	if strings.TrimSpace(arguments) == "" {
		return "{}" // of a call without arguments
	}
	return arguments
}

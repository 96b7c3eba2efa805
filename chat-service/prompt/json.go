package prompt

import (
	"errors"

	"github.com/whence-dev/whence/chat-service/prompt/jinja"
)

// readObject converts a JSON object to a template value. Members keep the order of the text,
// because templates write them in that order, and numbers are read as Python's json reads them. NUL
// becomes U+FFFD. once refuses an object with two members of one name, of which a template sees only
// one.
func readObject(text string, once bool) (*jinja.Dict, error) {
	v, err := jinja.ReadJSON(text, once, Clean)
	if err != nil {
		return nil, err
	}
	object, ok := v.(*jinja.Dict)
	if !ok {
		return nil, errors.New("it is not an object")
	}
	return object, nil
}

// Package form picks the form of errors of the HTTP API that a route belongs to.
package form

import (
	"strings"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/ollama"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/responses"
	"github.com/whence-dev/whence/api-service/sglang"
)

// forms are the forms by the roots of routes. All other routes use OpenAI's form.
var forms = map[string]*call.Form{
	"/v1/messages":   &anthropic.Form,
	"/v1/responses":  &responses.Form,
	"/generate":      &sglang.Form,
	"/abort_request": &sglang.Form, "/model_info": &sglang.Form, "/get_model_info": &sglang.Form,
	"/api": &ollama.Form,
}

// Of returns the form of the API that the path of a request belongs to.
func Of(path string) *call.Form {
	for root, f := range forms {
		if rest, below := strings.CutPrefix(path, root); below && (rest == "" || rest[0] == '/') {
			return f
		}
	}
	return &openai.Form
}

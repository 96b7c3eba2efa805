package ollama

import (
	"strings"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Form is the form of errors in Ollama's API, with the ending of the stream beside:
//
//	{"error":"…","whence":{"reason","origin","path","param","code"}}
//
// A failed stream ends with such a line.
var Form = call.Form{
	Done:    "done",
	Lines:   true,
	AnyType: true, // as curl sends the examples of Ollama's documents
	Refusal: func(status int, err *streamerr.Error, _ string) (int, []byte) { return status, errorBody(err) },
	Failure: func(err *streamerr.Error, _ string, lines call.Lines) {
		lines.End(append(lines.Begin(), errorBody(err)...))
	},
}

// notFound has the words for which clients look to offer a pull of the model.
var notFound = strings.NewReplacer("the model ", "model ", " does not exist", " not found")

func errorBody(err *streamerr.Error) []byte {
	text := err.Text()
	if err.Reason == streamerr.NotFound && err.Code == streamerr.CodeModelNotFound {
		text = notFound.Replace(text)
	}
	return marshal(struct {
		Error  string              `json:"error"`
		Whence streamerr.Extension `json:"whence"`
	}{text, err.Extension()})
}

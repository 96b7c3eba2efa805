package sglang

import (
	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Form is the form of errors in SGLang's API, with the ending of the stream beside:
//
//	{"error":{"message","whence":{"reason","origin","path","param","code"}}}
//
// A failed stream ends with such a data line, and unlike SGLang's without [DONE] after it.
var Form = call.Form{
	Done:    done,
	Refusal: func(status int, err *streamerr.Error, _ string) (int, []byte) { return status, errorBody(err) },
	Failure: func(err *streamerr.Error, _ string, lines call.Lines) {
		lines.End(append(lines.Begin(), errorBody(err)...))
	},
}

func errorBody(err *streamerr.Error) []byte {
	type object struct {
		Message string              `json:"message"`
		Whence  streamerr.Extension `json:"whence"`
	}
	return marshal(struct {
		Error object `json:"error"`
	}{object{err.Text(), err.Extension()}})
}

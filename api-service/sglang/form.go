package sglang

import (
	"github.com/whence-dev/whence/api-service/call"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
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

// ModelInfo returns the body of GET /model_info.
func ModelInfo(m *chatv1.Model) []byte {
	return marshal(struct {
		Model     string `json:"model_path"`
		Tokenizer string `json:"tokenizer_path"`
		Generates bool   `json:"is_generation"`
		Images    bool   `json:"has_image_understanding"`
		Context   uint32 `json:"context_length"`
	}{m.GetId(), m.GetId(), !m.GetPoolsOnly(), m.GetImages(), m.GetContextLength()})
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

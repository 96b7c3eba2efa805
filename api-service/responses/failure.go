package responses

import (
	"cmp"
	"fmt"

	"github.com/whence-dev/whence/api-service/call"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Form is the form of errors in the Responses API, which is OpenAI's, but for words about the context.
var Form = call.Form{
	Refusal: func(status int, err *streamerr.Error, _ string) (int, []byte) { return status, worded(err).JSON() },
	Failure: func(err *streamerr.Error, _ string, lines call.Lines) {
		lines.End(append(lines.Begin(), worded(err).JSON()...))
	},
}

// worded returns an error with the words of the Responses API about a prompt that is too long.
// Clients look for these words, because their SDKs show them nothing but the message.
func worded(err *streamerr.Error) *streamerr.Error {
	if err.Code != streamerr.CodeContextLength || err.Reason != streamerr.Invalid {
		return err
	}
	const tooLong = "Your input exceeds the context window of this model"
	out := *err
	if over, ok := err.Overflow(); ok {
		out.Message = fmt.Sprintf("%s. Please adjust your input and try again: it has %d tokens, and the maximum context length is %d tokens.", tooLong, over.Tokens, over.Limit)
	} else {
		out.Message = tooLong + ": " + err.Text()
	}
	return &out
}

// fail is Fail for the stream with this id.
func (e *Encoder) fail(err *streamerr.Error, id string, lines call.Lines) {
	e.stream = cmp.Or(e.stream, id)
	e.Fail(err, lines)
}

// Fail encodes the last events of a stream that failed: error, at which libraries raise an exception,
// and response.failed with the items so far. A response that its client has stopped or left is
// cancelled. If the request was refused after its status had been sent, Fail begins the response, so
// that the response can fail.
func (e *Encoder) Fail(err *streamerr.Error, lines call.Lines) {
	e.lines, err = lines, worded(err)
	if e.status == queued {
		e.start(&llmv1.Started{Model: cmp.Or(e.model, e.request.GetModel())})
		e.announce("response.created")
	}
	with, p := failed, &problem{Code: codeOf(err), Message: err.Text()}
	if err.Reason == streamerr.UserStop || err.Reason == streamerr.ClientGone {
		with = cancelled
	}
	if e.open != nil {
		e.open.status = incomplete
	}
	e.raise(err)
	e.finish("response.failed", with, result{problem: p}, err.Extension())
}

// raise encodes the event error. OpenAI's libraries look for an object, as in the body of a refusal,
// and the API's reference has the same members beside the type.
func (e *Encoder) raise(err *streamerr.Error) {
	code, message, param := marshal(codeOf(err)), marshal(err.Text()), []byte("null")
	if err.Param != "" {
		param = marshal(err.Param)
	}
	b := append(append(append(append(e.begin("error"), `,"code":`...), code...), `,"message":`...), message...)
	b = append(append(append(b, `,"param":`...), param...), `,"error":{"type":`...)
	b = append(append(append(b, marshal(err.Reason.Type())...), `,"code":`...), code...)
	b = append(append(append(b, `,"message":`...), message...), `,"param":`...)
	b = append(append(append(b, param...), `,"whence":`...), marshal(err.Extension())...)
	e.end(append(b, '}', '}'))
}

// codeOf returns the code of an error: Whence's reason if OpenAI's API has no code, because clients
// drop an error whose code is null.
func codeOf(err *streamerr.Error) string { return cmp.Or(err.APICode(), err.Reason.String()) }

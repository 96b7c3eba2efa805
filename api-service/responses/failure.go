package responses

import (
	"cmp"

	"github.com/whence-dev/whence/api-service/call"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// fail is Fail for the stream with this id.
func (e *Encoder) fail(err *streamerr.Error, id string, lines call.Lines) {
	e.stream = cmp.Or(e.stream, id)
	e.Fail(err, lines)
}

// Fail encodes the last event of a stream that failed: response.failed with the items so far. A
// response that its client has stopped or left is cancelled. If the request was refused after its
// status had been sent, Fail begins the response, so that the response can fail.
func (e *Encoder) Fail(err *streamerr.Error, lines call.Lines) {
	e.lines = lines
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
	e.finish("response.failed", with, result{problem: p}, err.Extension())
}

// codeOf returns the code of an error: Whence's reason if OpenAI's API has no code, because clients
// drop an error whose code is null.
func codeOf(err *streamerr.Error) string { return cmp.Or(err.APICode(), err.Reason.String()) }

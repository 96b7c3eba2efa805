package responses

import (
	"cmp"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/jsontext"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// fail encodes the last event of a stream that failed: response.failed with the items so far, or, if
// the stream was refused after its status had been sent, error. A response whose client has stopped
// it is cancelled.
func (e *encoder) fail(err *streamerr.Error, _ string, lines call.Lines) {
	e.lines = lines
	if e.created == 0 {
		e.refuse(err)
		return
	}
	with := failed
	if err.Reason == streamerr.UserStop {
		with = cancelled
	}
	if e.open != nil {
		e.open.status = incomplete
	}
	p := &problem{Code: codeOf(err), Message: err.Text()}
	e.finish("response.failed", with, result{problem: p}, err.Extension())
}

// refuse encodes the event error. OpenAI's types have the error's words in the event itself, and its
// SDKs read the error object.
func (e *encoder) refuse(err *streamerr.Error) {
	e.last = "error"
	b := jsontext.String(append(e.begin(e.last), `,"message":`...), err.Text())
	b = jsontext.String(append(b, `,"code":`...), codeOf(err))
	b = appendWord(append(b, `,"param":`...), err.Param)
	object := err.JSON() // {"error":{…}}
	b = append(append(b, ','), object[1:len(object)-1]...)
	e.end(append(append(append(b, `,"whence":`...), marshal(err.Extension())...), '}'))
}

// codeOf returns the code of an error: our reason where OpenAI's API has none, because clients drop an
// error whose code is null.
func codeOf(err *streamerr.Error) string { return cmp.Or(err.APICode(), err.Reason.String()) }

// appendWord appends a string, or null for "".
func appendWord(b []byte, word string) []byte {
	if word == "" {
		return append(b, "null"...)
	}
	return jsontext.String(b, word)
}

package anthropic

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/jsontext"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// done is the name of the last event of a stream that completed.
	done = "message_stop"
	// statusOverloaded is Anthropic's status for a server without capacity. 429 means that the
	// caller is over a limit of its own.
	statusOverloaded = 529
)

// Form is the form of errors in Anthropic's API, with the ending of the stream beside:
//
//	{"type":"error","error":{"type","message"},"request_id","whence":{"reason","origin","path","param","code"}}
var Form = call.Form{
	Done:     done,
	IDHeader: "request-id",
	Refusal: func(status int, err *streamerr.Error, id string) (int, []byte) {
		if status == http.StatusTooManyRequests && kindOf(status, err) == "overloaded_error" {
			status = statusOverloaded
		}
		return status, appendError(nil, status, err, id)
	},
	Failure: func(err *streamerr.Error, id string, lines call.Lines) {
		lines.End(appendError(lines.BeginEvent("error"), 0, err, id))
	},
	Ping: func(lines call.Lines) { lines.End(append(lines.BeginEvent("ping"), `{"type":"ping"}`...)) },
}

// kindOf returns error.type. Only errors after which a client may retry, elsewhere or later, are
// overloaded_error.
func kindOf(status int, err *streamerr.Error) string {
	switch err.Reason {
	case streamerr.Invalid:
		if status == http.StatusRequestEntityTooLarge {
			return "request_too_large"
		}
		return "invalid_request_error"
	case streamerr.Unauthenticated:
		return "authentication_error"
	case streamerr.Forbidden:
		return "permission_error"
	case streamerr.NotFound:
		return "not_found_error"
	case streamerr.Overloaded:
		if err.Code != "" { // a limit of the caller, here or on a server behind a worker, such as insufficient_quota
			return "rate_limit_error"
		}
		return "overloaded_error"
	case streamerr.Draining, streamerr.Unavailable:
		return "overloaded_error"
	case streamerr.Deadline:
		return "timeout_error"
	default:
		return "api_error"
	}
}

// messageOf returns the message of an error. Anthropic's API has no code for a prompt that is too
// long, so its clients look for words, and compute from the numbers how much they must leave out.
func messageOf(err *streamerr.Error) string {
	const tooLong = "prompt is too long: "
	if over, ok := err.Overflow(); ok {
		return fmt.Sprintf("%s%d tokens > %d maximum", tooLong, over.Tokens, min(over.Limit, over.Tokens-1)) // an answer needs a token
	}
	if err.Code == streamerr.CodeContextLength {
		return tooLong + err.Text()
	}
	return err.Text()
}

// noThread is error.details of a request with a thread. Anthropic's SDKs then send the whole
// conversation instead.
const noThread = `,"details":{"error_code":"thread_unsupported_request","unsupported":["thread"]}`

// appendError appends the error object.
func appendError(b []byte, status int, err *streamerr.Error, id string) []byte {
	b = append(append(append(b, `{"type":"error","error":{"type":"`...), kindOf(status, err)...), `","message":`...)
	b = jsontext.String(b, messageOf(err))
	if err.Param == "thread" && err.Code == streamerr.CodeUnsupportedField {
		b = append(b, noThread...)
	}
	b = append(b, `},"request_id":`...)
	b = append(jsontext.String(b, id), `,"whence":`...)
	return append(append(b, marshal(err.Extension())...), '}')
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: structs of strings, numbers and valid JSON
	}
	return b
}

package overhttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// maxRetryAfter bounds what the server says.
	maxRetryAfter = time.Hour
	// maxBody bounds what is read of a response that is no stream, in bytes, and patience how long that may take.
	maxBody  = 64 << 10
	patience = 2 * time.Second
)

// Done is the data of a stream's last event.
const Done = "[DONE]"

// refused makes an ending of a response that is no answer. What the upstream says is quoted, but where it is about the key:
// that is the operator's, and some servers repeat a part of it.
func refused(resp *http.Response) *streamerr.Error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody)) // what has come is all there is to say
	message := MessageOf(body)
	if message == "" {
		message = "it gave no reason"
	}
	reason := streamerr.EngineFailed
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		reason = streamerr.Invalid
	case http.StatusUnauthorized, http.StatusForbidden:
		return beside.Fail(streamerr.EngineFailed, nil, "the server that generates refuses the worker's key (status %d); --upstream-key sets it", resp.StatusCode)
	case http.StatusNotFound:
		reason = streamerr.NotFound
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		reason = streamerr.Deadline
	case http.StatusTooManyRequests:
		reason = streamerr.Overloaded
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		reason = streamerr.Unavailable
	case http.StatusOK:
		return beside.Fail(streamerr.EngineFailed, nil, "the server that generates answered with %q and no stream: %s", beside.Clip(resp.Header.Get("Content-Type"), 64), message)
	}
	e := beside.Fail(reason, nil, "the server that generates answered with status %d: %s", resp.StatusCode, message)
	if reason == streamerr.Overloaded || reason == streamerr.Unavailable {
		e.RetryAfter = retryIn(resp.Header.Get("Retry-After"))
	}
	return e
}

// retryIn reads Retry-After, which is seconds or a date.
func retryIn(header string) time.Duration {
	after := beside.RetryAfter
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		after = time.Until(at)
	}
	return min(max(after, beside.RetryAfter), maxRetryAfter)
}

// readFailed says how a stream ended that could be read no further.
func readFailed(err error) *streamerr.Error {
	switch {
	case errors.Is(err, errNotEvents):
		return beside.Broken(err)
	case errors.Is(err, io.EOF):
		return beside.Lost(fmt.Errorf("no %s: %w", Done, err), "closed the stream without an ending")
	default:
		return beside.Lost(err, "broke the connection")
	}
}

// MessageOf returns what a body says is wrong. Servers say it in every way there is: as an object or text in "error", on
// the top level, or, where FastAPI has refused the request, in "detail". What is none of these is quoted as it is.
func MessageOf(body []byte) string {
	var said struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	var object struct {
		Message string `json:"message"`
	}
	var text string
	_ = json.Unmarshal(body, &said) // what does not fit leaves the fields empty
	_ = json.Unmarshal(said.Error, &object)
	_ = json.Unmarshal(said.Error, &text)
	switch {
	case object.Message != "":
		text = object.Message
	case text != "":
	case said.Message != "":
		text = said.Message
	case len(said.Detail) > 0:
		text = string(said.Detail)
		_ = json.Unmarshal(said.Detail, &text)
	default:
		text = string(body)
	}
	return beside.Clip(text, beside.MaxMessage)
}

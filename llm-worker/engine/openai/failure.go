package openai

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// engineHop is the origin of endings that the upstream decided, or that its end of the connection made.
	engineHop = "engine"
	// retryAfter is what callers are told where the upstream does not say: it is asked that often how it is.
	retryAfter = time.Second
	// maxRetryAfter bounds what the upstream says.
	maxRetryAfter = time.Hour
	// maxBody bounds what is read of a response that is no stream, in bytes, and patience how long that may take.
	maxBody  = 64 << 10
	patience = 2 * time.Second
)

// fail makes an ending whose origin is the upstream.
func fail(reason streamerr.Reason, cause error, format string, args ...any) *streamerr.Error {
	e := streamerr.New(reason, format, args...)
	e.Path, e.Cause = streamerr.NewPath(engineHop), cause
	return e
}

// unavailable says that the upstream cannot be asked now.
func unavailable(cause error) *streamerr.Error {
	e := fail(streamerr.Unavailable, cause, "the server that generates does not answer")
	e.RetryAfter = retryAfter
	return e
}

// lost says that the upstream went away in the middle of an answer.
func lost(cause error, how string) *streamerr.Error {
	return fail(streamerr.PeerLost, cause, "the server that generates %s", how)
}

// broken says that what the upstream sends cannot be understood.
func broken(cause error) *streamerr.Error {
	return fail(streamerr.EngineFailed, cause, "the server that generates sent nonsense: %s", clip(cause.Error(), maxMessage))
}

// refused makes an ending of a response that is no answer. What the upstream says is quoted, but where it is about the key:
// that is the operator's, and some servers repeat a part of it.
func refused(resp *http.Response) *streamerr.Error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody)) // what has come is all there is to say
	message := messageOf(body)
	if message == "" {
		message = "it gave no reason"
	}
	reason := streamerr.EngineFailed
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		reason = streamerr.Invalid
	case http.StatusUnauthorized, http.StatusForbidden:
		return fail(streamerr.EngineFailed, nil, "the server that generates refuses the worker's key (status %d); --upstream-key sets it", resp.StatusCode)
	case http.StatusNotFound:
		reason = streamerr.NotFound
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		reason = streamerr.Deadline
	case http.StatusTooManyRequests:
		reason = streamerr.Overloaded
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		reason = streamerr.Unavailable
	case http.StatusOK:
		return fail(streamerr.EngineFailed, nil, "the server that generates answered with %q and no stream: %s", clip(resp.Header.Get("Content-Type"), 64), message)
	}
	e := fail(reason, nil, "the server that generates answered with status %d: %s", resp.StatusCode, message)
	if reason == streamerr.Overloaded || reason == streamerr.Unavailable {
		e.RetryAfter = retryIn(resp.Header.Get("Retry-After"))
	}
	return e
}

// retryIn reads Retry-After, which is seconds or a date.
func retryIn(header string) time.Duration {
	after := retryAfter
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		after = time.Until(at)
	}
	return min(max(after, retryAfter), maxRetryAfter)
}

// clip makes text fit for one line of at most n bytes.
func clip(text string, n int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.TrimSpace(text))
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// readFailed says how a stream ended that could be read no further.
func readFailed(err error) *streamerr.Error {
	switch {
	case errors.Is(err, errNotEvents):
		return broken(err)
	case errors.Is(err, io.EOF):
		return lost(fmt.Errorf("no %s: %w", done, err), "closed the stream without an ending")
	default:
		return lost(err, "broke the connection")
	}
}

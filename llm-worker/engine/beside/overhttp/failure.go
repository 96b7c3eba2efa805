package overhttp

import (
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
	// maxSeconds keeps a server's durations within a time.Duration; package beside bounds them
	// further.
	maxSeconds = 1e6
	// maxBody bounds the bytes read of a response that is not a stream, and patience bounds the
	// time.
	maxBody  = 64 << 10
	patience = 2 * time.Second
)

// Done is the data of a stream's last event.
const Done = "[DONE]"

// refused converts a response that is not an answer to an ending. The status decides the reason, or
// the body if the status is 200. The ending quotes the server's message, unless the message is
// about the key.
func (c *Client) refused(resp *http.Response) *streamerr.Error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody)) // a partial body is better than none
	said := ReadComplaint(body)
	if header := resp.Header.Get("Retry-After"); header != "" {
		said.RetryAfter = retryIn(header)
	}
	if resp.StatusCode == http.StatusOK {
		return c.dialect.Complete(said, true).Ending(fmt.Sprintf("answered with %q and no stream", beside.Clip(resp.Header.Get("Content-Type"), 64)))
	}
	said.Status = resp.StatusCode
	return c.dialect.Complete(said, false).Ending(fmt.Sprintf("answered with status %d", resp.StatusCode))
}

// retryIn parses Retry-After, in seconds or as a date; it returns 0 for anything else.
func retryIn(header string) time.Duration {
	if seconds, err := strconv.ParseFloat(header, 64); err == nil && seconds > 0 {
		return time.Duration(min(seconds, maxSeconds) * float64(time.Second))
	}
	if at, err := http.ParseTime(header); err == nil {
		return time.Until(at)
	}
	return 0
}

// readFailed returns the ending of a stream after a read error.
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

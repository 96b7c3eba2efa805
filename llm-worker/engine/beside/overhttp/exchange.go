package overhttp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// An Exchange is a request whose answer is one JSON object.
type Exchange struct {
	wire wire
	path string
	body []byte
	max  int64 // maximum bytes of the answer
}

// Exchange returns a request for an answer of at most max bytes. It sends nothing.
func (c *Client) Exchange(path string, body []byte, max int64) *Exchange {
	return &Exchange{wire: wire{client: c}, path: path, body: body, max: max}
}

// Do sends the request and reads the answer. It uses only the values of ctx; HangUp ends it.
func (x *Exchange) Do(ctx context.Context, into any) error {
	resp, err := x.wire.send(ctx, http.MethodPost, x.path, x.body) //nolint:bodyclose // see send
	if err != nil {
		return beside.Unavailable(err)
	}
	if resp.StatusCode != http.StatusOK {
		return x.wire.refused(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, x.max+1))
	switch {
	case err != nil:
		return beside.Lost(err, "broke the connection")
	case int64(len(body)) > x.max:
		return beside.Broken(fmt.Errorf("an answer of more than %d bytes", x.max))
	}
	x.wire.release()
	if err := json.Unmarshal(body, into); err != nil {
		return beside.Broken(fmt.Errorf("the answer is not the expected JSON object: %w", err))
	}
	return nil
}

// HangUp is the same as Stream.HangUp.
func (x *Exchange) HangUp() { x.wire.hangUp() }

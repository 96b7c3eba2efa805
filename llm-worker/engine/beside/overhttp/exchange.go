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
	client *Client
	wire   wire
	path   string
	body   []byte
	max    int64 // maximum bytes of the answer
}

// Exchange returns a request for an answer of at most max bytes. It sends nothing.
func (c *Client) Exchange(path string, body []byte, max int64) *Exchange {
	return &Exchange{client: c, path: path, body: body, max: max}
}

// Do sends the request and reads the answer. It uses only the values of ctx; HangUp ends it.
func (x *Exchange) Do(ctx context.Context, into any) error {
	resp, err := x.client.ask(x.wire.lay(ctx), http.MethodPost, x.path, x.body)
	if err != nil {
		return beside.Unavailable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		defer closeAfter(resp.Body, patience)() // an error body is read, but only for a limited time
		return x.client.refused(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, x.max+1))
	switch {
	case err != nil:
		return beside.Lost(err, "broke the connection")
	case int64(len(body)) > x.max:
		return beside.Broken(fmt.Errorf("an answer of more than %d bytes", x.max))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return beside.Broken(fmt.Errorf("the answer is not the expected JSON object: %w", err))
	}
	return nil
}

// HangUp is the same as Stream.HangUp.
func (x *Exchange) HangUp() { x.wire.hangUp() }

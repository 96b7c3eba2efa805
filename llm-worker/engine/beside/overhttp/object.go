package overhttp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// An Object is a request whose answer is one JSON object.
type Object struct {
	client *Client
	wire   wire
	path   string
	body   []byte
}

// Object returns a request. It sends nothing.
func (c *Client) Object(path string, body []byte) *Object {
	return &Object{client: c, path: path, body: body}
}

// Read sends the request and reads the answer, at most limit bytes. It uses only the values of ctx;
// HangUp ends it.
func (o *Object) Read(ctx context.Context, limit int64, into any) error {
	resp, err := o.client.ask(o.wire.lay(ctx), http.MethodPost, o.path, o.body) //nolint:bodyclose // it ends with its connection
	if err != nil {
		return beside.Unavailable(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer closeAfter(resp.Body, patience)() // an error body is read, but only for a limited time
		return refused(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return beside.Lost(err, "broke the connection")
	case int64(len(body)) > limit:
		return beside.Broken(fmt.Errorf("an answer of more than %d bytes", limit))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return beside.Broken(fmt.Errorf("the answer is not the expected JSON object: %w", err))
	}
	return nil
}

// HangUp closes the connection, whatever state the request is in. When it returns, the kernel has
// closed the connection. Any goroutine may call it, and more than once.
func (o *Object) HangUp() { o.wire.hangUp() }

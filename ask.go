package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// askTimeout bounds a request to an api-service, maxAnswer its answer: ten thousand live streams,
// with a margin.
const (
	askTimeout = 10 * time.Second
	maxAnswer  = 16 << 20
)

// defaultURL is the api-service of `go run .`.
const defaultURL = "http://127.0.0.1:8080"

// A client calls an api-service for a subcommand.
type client struct{ url, key, operator string }

func (a *client) flags(fs *flag.FlagSet) {
	fs.StringVar(&a.url, "url", defaultURL, "`url` of an api-service")
	fs.StringVar(&a.key, "key", "", "API `key`, which sees the streams of its tenant; it is used instead of --operator-key")
	fs.StringVar(&a.operator, "operator-key", "", "`key` of the api-service's --operator-key, which sees all streams")
}

// credentials returns the key to send; an empty key means none.
func (a *client) credentials() string {
	if a.key != "" {
		return a.key
	}
	return a.operator
}

// ask sends a GET, and decodes the JSON answer into into.
func (a *client) ask(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		return err
	}
	if key := a.credentials(); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end, or too long
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		if e, ok := streamerr.ParseJSON(body); ok {
			return e
		}
		return fmt.Errorf("%s answered %s", a.url, resp.Status)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the answer of %s cannot be parsed: %w", a.url, err)
	}
	return nil
}

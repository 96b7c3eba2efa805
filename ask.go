package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// askTimeout bounds a question to an api-service; maxAnswer its answer: ten thousand live streams, generously.
const (
	askTimeout = 10 * time.Second
	maxAnswer  = 16 << 20
)

// ask is a GET of an api-service at edge, whose answer is JSON for into.
func ask(ctx context.Context, edge, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, edge+path, nil)
	if err != nil {
		return err
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
		return fmt.Errorf("%s answered %s", edge, resp.Status)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s did not answer with what was asked: %w", edge, err)
	}
	return nil
}

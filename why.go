package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/pkg/process"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// askTimeout bounds the question; maxStory the answer.
const (
	askTimeout = 10 * time.Second
	maxStory   = 1 << 20
)

// why is the subcommand `why ID`: it prints what became of a stream, hop by hop.
func why(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("whence why ID", flag.ContinueOnError)
	edge := fs.String("url", "http://127.0.0.1:8080", "`url` of an api-service")
	var id string
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		id, args = args[0], args[1:]
	}
	if err := process.Parse(fs, args, out); err != nil {
		return err
	}
	if id == "" {
		return errors.New("which stream? whence why ID [--url URL]; the id is the X-Request-Id of its response")
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, *edge+"/v1/streams/"+url.PathEscape(id), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end, or too long
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxStory))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		if e, ok := streamerr.ParseJSON(body); ok {
			return e
		}
		return fmt.Errorf("%s answered %s", *edge, resp.Status)
	}
	var s story.Story
	if err := json.Unmarshal(body, &s); err != nil {
		return fmt.Errorf("%s did not answer with a story: %w", *edge, err)
	}
	return s.Print(out)
}

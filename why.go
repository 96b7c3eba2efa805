package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/url"

	"github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/process"
)

// why is the subcommand `why ID`: it prints the history of a stream, hop by hop.
func why(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("whence why ID", flag.ContinueOnError)
	var edge client
	edge.flags(fs)
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
	var s story.Story
	if err := edge.ask(context.Background(), "/v1/streams/"+url.PathEscape(id), &s); err != nil {
		return err
	}
	return s.Print(out)
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/process"
)

// clearScreen takes a terminal's cursor to its upper left corner and empties the screen.
const clearScreen = "\x1b[H\x1b[J"

// watch is the subcommand `top`: it lists the live streams of an api-service, oldest first, and
// repeats.
func watch(args []string, out *os.File) error {
	fs := flag.NewFlagSet("whence top", flag.ContinueOnError)
	var edge client
	edge.flags(fs)
	every := fs.Duration("every", time.Second, "time between two lists")
	once := fs.Bool("once", false, "list once, for scripts")
	if err := process.Parse(fs, args, out); err != nil {
		return err
	}
	if *every <= 0 {
		return fmt.Errorf("--every is %v; it must be over 0", *every)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if *once {
		return list(ctx, &edge, "", out)
	}
	before := ""
	if stat, err := out.Stat(); err == nil && stat.Mode()&os.ModeCharDevice != 0 {
		before = clearScreen
	}
	tick := time.NewTicker(*every)
	defer tick.Stop()
	for {
		switch err := list(ctx, &edge, before, out); {
		case errors.Is(ctx.Err(), context.Canceled):
			return nil
		case err != nil:
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// list prints the live streams in one write, so that a terminal does not flicker.
func list(ctx context.Context, edge *client, before string, out io.Writer) error {
	live, err := liveStreams(ctx, edge)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s  %d live at %s\n\n", before, time.Now().Format(time.TimeOnly), len(live), edge.url)
	if err := table(live, &b); err != nil {
		return err
	}
	_, err = io.WriteString(out, b.String()+"\n")
	return err
}

// liveStreams returns the running streams, page by page.
func liveStreams(ctx context.Context, edge *client) (all []story.Story, err error) {
	for path := "/v1/streams"; ; {
		var page struct {
			Streams []story.Story `json:"streams"`
			Next    string        `json:"next_page_token"`
		}
		if err := edge.ask(ctx, path, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Streams...)
		if page.Next == "" {
			return all, nil
		}
		path = "/v1/streams?page_token=" + url.QueryEscape(page.Next)
	}
}

// table prints one line for each stream. The lines have the part of one hop, the one that was
// called.
func table(streams []story.Story, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STREAM\tMODEL\tAGE\tSTATE\tTOKENS\tPEER") //nolint:errcheck // Flush says it
	for _, s := range streams {
		state, hop := s.State, s.Hops[0]
		if s.Reason != "" {
			state += ", " + s.Reason
		}
		model := s.Model
		if model == "" {
			model = "-" // not admitted yet
		}
		age := time.Duration(hop.TookMS * float64(time.Millisecond)).Round(100 * time.Millisecond)
		fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%d\t%s\n", s.ID, model, age, state, s.Tokens.Delivered, hop.Peer) //nolint:errcheck // likewise
	}
	return w.Flush()
}

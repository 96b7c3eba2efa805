// Command chat is the usual picture of a chat on CloudWeGo, with services of your own in place of
// Whence's: a browser reads server-sent events of a Hertz service, which calls a chat service over
// Kitex, which calls a model over Kitex.
//
//	browser ──SSE──> api (Hertz) ──Kitex──> chat ──Kitex──> llm ──> a fake model
//
// The user closes the tab in the middle of the answer. The model stops, and four log lines say who
// ended the stream: one of the model, and one of each hop, with the same reason and origin.
//
//   - api.go: a Hertz handler that answers with SSE and notices that its client has left.
//   - chat.go: the method that both Kitex services have, and a service that answers by asking the
//     one below.
//   - model.go: a model that writes a word at a time until it is stopped.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func main() {
	kitexrpc.LogTo(io.Discard)
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chat:", err)
		os.Exit(1)
	}
}

// grace is the time in which a stopped stream must end on all hops. It is longer than the default of 250
// ms, because an example also runs on machines that are busy.
const grace = 10 * time.Second

// patience bounds the time in which a service that stops lets its streams end.
const patience = 10 * time.Second

// errStopping is the cause with which the remaining streams of a service end when it stops.
var errStopping = streamerr.New(streamerr.Draining, "the service is shutting down")

// drain waits until the streams of a hop have ended.
func drain(hop *rpc.Hop) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	hop.Live.Drain(ctx, errStopping)
}

// run starts the three services, and asks a question as a user who leaves after five words.
func run(ctx context.Context, out io.Writer) (err error) {
	log := slog.New(slog.NewTextHandler(out, nil))
	llm, err := serve("llm", model(log), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, llm.stop()) }()
	chat, err := serve("chat", asking("chat", llm), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, chat.stop()) }()
	api, err := serveHTTP("api", asking("api", chat), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, api.stop()) }()
	return readAndLeave(ctx, "http://"+api.addr+"/chat?question="+url.QueryEscape("What happens when I close the tab?"), out)
}

// readAndLeave reads five words of an answer, and closes the connection, as a closed tab does.
func readAndLeave(ctx context.Context, address string, out io.Writer) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // the body was left in the middle
	lines, words := bufio.NewScanner(resp.Body), 0
	for words < 5 && lines.Scan() {
		if word, ok := strings.CutPrefix(lines.Text(), "data:"); ok {
			words++
			if _, err := fmt.Fprintln(out, "browser: got", strings.TrimSpace(word)); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

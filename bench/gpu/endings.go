package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/lab"
)

// An endingRow is a way in which a stream ends on a server, and the reason that all hops must report.
type endingRow struct {
	name   string
	reason string // "" for a stream that completes
	status int    // of the answer; 0 is 200
	// play makes the stream, whose id it returns.
	play func(ctx context.Context, s *stand) (*result, error)
	// noStory says that the stream is refused by the first hop that knows it.
	noStory bool
	// again says that the worker is asked to continue the stream that it lost: then its record is that of
	// the last try.
	again bool
}

// afterSome reports false, so that a client leaves, after some tokens.
func afterSome(r *result) bool { return len(r.ids) < 5 }

const tale = "Tell a long story of a lighthouse, and do not stop. "

// many returns a number of tokens that takes long enough to do something to the stream meanwhile.
func (s *stand) many(ctx context.Context) int { return min(1000, s.context(ctx)/2) }

// longPrompt returns a prompt that fills a third of the context, roughly.
func (s *stand) longPrompt(ctx context.Context) string {
	return strings.Repeat(tale, max(1, s.context(ctx)/3/len(strings.Fields(tale))/2))
}

var endingRows = []endingRow{
	{name: "all tokens that were asked for", play: func(ctx context.Context, s *stand) (*result, error) {
		return s.stream(ctx, ask{prompt: tale, tokens: 20})
	}},
	{name: "the client leaves", reason: "client_gone", play: func(ctx context.Context, s *stand) (*result, error) {
		return s.stream(ctx, ask{prompt: tale, tokens: s.many(ctx), each: afterSome})
	}},
	{name: "the client leaves while the server reads the prompt", reason: "client_gone", play: leaveInPrefill},
	{name: "the stream is stopped by its id", reason: "user_stop", play: func(ctx context.Context, s *stand) (*result, error) {
		var failed error
		asked := false
		r, err := s.stream(ctx, ask{prompt: tale, tokens: s.many(ctx), each: func(r *result) bool {
			if len(r.ids) >= 5 && !asked {
				asked, failed = true, s.remove(ctx, r.id)
			}
			return failed == nil
		}})
		if err == nil {
			err = failed
		}
		return r, err
	}},
	{name: "the time is over", reason: "deadline", play: func(ctx context.Context, s *stand) (*result, error) {
		return s.stream(ctx, ask{prompt: tale, tokens: s.many(ctx), more: map[string]any{"timeout": 1}})
	}},
	{name: "the prompt does not fit", reason: "invalid", status: http.StatusBadRequest, noStory: true, play: func(ctx context.Context, s *stand) (*result, error) {
		return s.stream(ctx, ask{prompt: strings.Repeat(tale, s.context(ctx)/8+1), tokens: 5})
	}},
	{name: "the server is killed", reason: "peer_lost", again: true, play: func(ctx context.Context, s *stand) (*result, error) {
		return s.stream(ctx, ask{prompt: tale, tokens: s.many(ctx), each: func(r *result) bool {
			if len(r.ids) >= 5 {
				_ = s.servers[0].Signal(syscall.SIGKILL) // it may have ended already
			}
			return true
		}})
	}},
}

// leaveInPrefill leaves a stream whose long prompt the server is reading.
func leaveInPrefill(ctx context.Context, s *stand) (*result, error) {
	return s.leavePrefill(ctx, s.longPrompt(ctx))
}

// leavePrefill begins a stream with a prompt, and leaves it prefillFor after its worker knows of it. On a
// slow machine, the server may have read the prompt by then.
func (s *stand) leavePrefill(ctx context.Context, prompt string) (*result, error) {
	reading, leave := context.WithCancel(ctx)
	defer leave()
	id := fmt.Sprintf("prefill-%d", time.Now().UnixNano())
	known := make(chan error, 1)
	go func() { // waited for below
		err := lab.Await(reading, "the worker knows of the stream", func() bool {
			told, ok := s.story(reading, id)
			return ok && len(told.Hops) == 3
		})
		if err == nil {
			time.Sleep(prefillFor)
		}
		leave()
		known <- err
	}()
	r, err := s.stream(reading, ask{prompt: prompt, tokens: s.many(ctx) / 2, id: id})
	ended := reading.Err() == nil
	leave()
	if failed := <-known; ended || failed != nil {
		return r, fmt.Errorf("the stream was not left while it ran: %w", errors.Join(err, failed))
	}
	return &result{id: id, left: true, status: http.StatusOK}, ctx.Err()
}

// prefillFor is the time after which a client leaves a server that reads a long prompt.
const prefillFor = 30 * time.Millisecond

// endings plays all ways in which a stream ends, one after another, and fails if a hop reports another
// reason than the one that is true.
func endings(ctx context.Context, s *stand) ([]figure, error) {
	if err := s.start(ctx, 1, func(*launch) {}); err != nil {
		return nil, err
	}
	right := 0
	for _, row := range endingRows {
		r, err := row.play(ctx, s)
		if err == nil {
			err = s.judge(ctx, &row, r)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.name, err)
		}
		right++
	}
	return []figure{count("endings that every hop reports with the true reason", right, len(endingRows))}, nil
}

// judge compares the ending that the client and each hop report with the expected ending.
func (s *stand) judge(ctx context.Context, row *endingRow, r *result) error {
	status := row.status
	if status == 0 {
		status = http.StatusOK
	}
	switch {
	case r.status != status && (row.reason != "deadline" || r.status != http.StatusGatewayTimeout): // before the first token
		return fmt.Errorf("status %d", r.status)
	case row.reason == "" && (!r.done || r.finish == "" || r.reason != ""):
		return fmt.Errorf("finish_reason %q, [DONE] %t, error %q", r.finish, r.done, r.reason)
	case row.reason != "" && !r.left && (r.reason != row.reason || r.done):
		return fmt.Errorf("the client is told %q, [DONE] %t", r.reason, r.done)
	case row.noStory:
		return nil
	}
	want := row.reason
	if want == "" {
		want = "completed"
	}
	var told reader.Story
	err := lab.Await(ctx, "the stream has ended on every hop", func() (ok bool) {
		told, ok = s.story(ctx, r.id)
		return ok && told.State == "ended" && len(told.Hops) == 3 && !slices.ContainsFunc(told.Hops, func(h reader.HopStory) bool { return h.Reason == "" })
	})
	for _, h := range told.Hops {
		if h.Reason != want && (!row.again || !strings.HasPrefix(h.Hop, "llm-worker")) {
			err = fmt.Errorf("%s reports %q, and not %q", h.Hop, h.Reason, want)
		}
	}
	return err
}

// story reads the story of a stream. It reports false if there is none.
func (s *stand) story(ctx context.Context, id string) (told reader.Story, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, getWithin)
	defer cancel()
	told, err := reader.Tell(ctx, &s.http, s.Edges[0].Addr, id)
	return told, err == nil
}

// remove stops a stream by its id.
func (s *stand) remove(ctx context.Context, id string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "http://"+s.Edges[0].Addr+"/v1/streams/"+id, nil)
	if err != nil {
		return err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only the status is needed
	if resp.StatusCode != http.StatusAccepted {
		var said json.RawMessage
		_ = json.NewDecoder(resp.Body).Decode(&said) // for the error alone
		return fmt.Errorf("DELETE %s: status %d: %.200s", id, resp.StatusCode, said)
	}
	return nil
}

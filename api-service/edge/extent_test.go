package edge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A streamStory is the part of a stream's story that these tests check.
type streamStory struct{ State, Reason, Extent string }

// awaitStory waits until the story of a stream satisfies is, and returns it.
func awaitStory(t *testing.T, url, id string, is func(streamStory) bool) streamStory {
	t.Helper()
	var got streamStory
	polltest.Eventually(t, "the story of "+id+" changes", func() bool {
		got = streamStory{}
		if err := json.Unmarshal([]byte(whole(t, ask(t, http.MethodGet, url+"/v1/streams/"+id, ""))), &got); err != nil {
			t.Fatal(err)
		}
		return is(got)
	})
	return got
}

// readUntil sends a request for a stream, and reads the answer until it contains piece count times.
// leave closes the connection.
func readUntil(t *testing.T, url, path, id, body, piece string, count int) (leave func()) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	var got []byte
	for buf := make([]byte, 4096); bytes.Count(got, []byte(piece)) < count; {
		n, err := resp.Body.Read(buf)
		if got = append(got, buf[:n]...); err != nil && bytes.Count(got, []byte(piece)) < count {
			t.Fatalf("%v after %q", err, got)
		}
	}
	return leave
}

func TestLeavingTellsHowMuchOfTheAnswerTheClientHas(t *testing.T) {
	for want, test := range map[string]struct {
		script, until string
		route         func(script string) (path, body string)
	}{
		"nothing":   {"start m hold x", ": keep-alive", chatRoute},
		"part":      {"start m say one hold x", `"content":"one"`, chatRoute},
		"tool_call": {"start m call {} hold x", `"arguments":"{}"`, chatRoute},

		"nothing of a message":   {"start m hold x", "event: ping", messagesRoute}, // the first piece begins the message
		"part of a message":      {"start m call [ hold x", `input_json_delta`, messagesRoute},
		"tool_call of a message": {"start m call {} hold x", `input_json_delta`, messagesRoute},
	} {
		t.Run(want, func(t *testing.T) {
			var log logtest.Log
			url, chat := startLogging(t, &log, func(c *edge.Config) { c.HeadersAfter, c.KeepAlive = 20*time.Millisecond, 20*time.Millisecond })
			path, body := test.route(test.script)
			leave := readUntil(t, url, path, "s", body, test.until, 1)
			leave()
			if cause := polltest.Receive(t, "the cause of the stop", chat.causes); streamerr.As(cause).Reason != streamerr.ClientGone {
				t.Error(cause)
			}
			extent, _, _ := strings.Cut(want, " ")
			if got := awaitStory(t, url, "s", func(s streamStory) bool { return s.State == "ended" }); got.Extent != extent || got.Reason != "client_gone" {
				t.Errorf("%+v, want %s", got, extent)
			}
			log.Await(t, "stream ended", "hop=api-service", "extent="+extent)
		})
	}
}

func chatRoute(script string) (path, body string) {
	return "/v1/chat/completions", strings.TrimSuffix(asking(script), "}") + `,"stream":true}`
}

func messagesRoute(script string) (path, body string) {
	return "/v1/messages", messages(script, `,"stream":true`)
}

// TestClientThatLeavesWithTheWholeAnswerHasCompleted covers a client that waits neither for the
// usage nor for the terminator.
func TestClientThatLeavesWithTheWholeAnswerHasCompleted(t *testing.T) {
	var log logtest.Log
	url, chat := startLogging(t, &log, nil)
	body := strings.TrimSuffix(asking("start m say one finish 0 finish 1 hold x end x"), "}") + `,"n":2,"stream":true}`
	leave := readUntil(t, url, "/v1/chat/completions", "s", body, `"finish_reason":"stop"`, 2)
	leave()
	if got := awaitStory(t, url, "s", func(s streamStory) bool { return s.Extent != "" }); got.State != "live" || got.Extent != "answer" {
		t.Errorf("before the end: %+v", got)
	}
	close(chat.release)
	if got := awaitStory(t, url, "s", func(s streamStory) bool { return s.State == "ended" }); got.Extent != "answer" || got.Reason != "completed" {
		t.Errorf("%+v, want completed", got)
	}
	if len(chat.causes) > 0 {
		t.Error("the stream was stopped:", polltest.Receive(t, "the cause of the stop", chat.causes))
	}
}

// TestClientThatReadsToTheEndHasNotLeft checks that closing a connection after the terminator does
// not count as leaving.
func TestClientThatReadsToTheEndHasNotLeft(t *testing.T) {
	url, _ := start(t, nil)
	path, body := chatRoute("start m say one end x")
	readUntil(t, url, path, "s", body, "[DONE]", 1)()
	if got := awaitStory(t, url, "s", func(s streamStory) bool { return s.State == "ended" }); got.Extent != "" || got.Reason != "completed" {
		t.Errorf("%+v", got)
	}
}

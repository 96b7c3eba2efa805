package edge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A tale is what the edge tells of a stream.
type tale struct{ State, Reason, Extent string }

// taleOf waits until the story of a stream is as wanted, and returns it.
func taleOf(t *testing.T, url, id string, is func(tale) bool) tale {
	t.Helper()
	for {
		var told tale
		if err := json.Unmarshal([]byte(whole(t, ask(t, http.MethodGet, url+"/v1/streams/"+id, ""))), &told); err != nil {
			t.Fatal(err)
		}
		if is(told) {
			return told
		}
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(told)
		}
	}
}

// readUntil sends a request for a stream, and reads the answer until it has count pieces of text. leave
// closes the connection.
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
		"nothing":   {"start m hold x", `"role":"assistant"`, chatRoute},
		"part":      {"start m say one hold x", `"content":"one"`, chatRoute},
		"tool_call": {"start m call {} hold x", `"arguments":"{}"`, chatRoute},

		"nothing of a message":   {"start m hold x", "message_start", messagesRoute},
		"part of a message":      {"start m call [ hold x", `input_json_delta`, messagesRoute},
		"tool_call of a message": {"start m call {} hold x", `input_json_delta`, messagesRoute},
	} {
		t.Run(want, func(t *testing.T) {
			var log logbook
			url, chat := startLogging(t, &log, nil)
			path, body := test.route(test.script)
			leave := readUntil(t, url, path, "s", body, test.until, 1)
			leave()
			if cause := <-chat.causes; streamerr.As(cause).Reason != streamerr.ClientGone {
				t.Error(cause)
			}
			extent, _, _ := strings.Cut(want, " ")
			if got := taleOf(t, url, "s", func(told tale) bool { return told.State == "ended" }); got.Extent != extent || got.Reason != "client_gone" {
				t.Errorf("%+v, want %s", got, extent)
			}
			log.line(t, "stream ended", "hop=api-service", "extent="+extent)
		})
	}
}

func chatRoute(script string) (path, body string) {
	return "/v1/chat/completions", strings.TrimSuffix(asking(script), "}") + `,"stream":true}`
}

func messagesRoute(script string) (path, body string) {
	return "/v1/messages", messages(script, `,"stream":true`)
}

// TestClientThatLeavesWithTheWholeAnswerHasCompleted checks a client that waits neither for the usage
// nor for the terminator.
func TestClientThatLeavesWithTheWholeAnswerHasCompleted(t *testing.T) {
	var log logbook
	url, chat := startLogging(t, &log, nil)
	body := strings.TrimSuffix(asking("start m say one finish 0 finish 1 hold x end x"), "}") + `,"n":2,"stream":true}`
	leave := readUntil(t, url, "/v1/chat/completions", "s", body, `"finish_reason":"stop"`, 2)
	leave()
	if got := taleOf(t, url, "s", func(told tale) bool { return told.Extent != "" }); got.State != "live" || got.Extent != "answer" {
		t.Errorf("before the end: %+v", got)
	}
	close(chat.release)
	if got := taleOf(t, url, "s", func(told tale) bool { return told.State == "ended" }); got.Extent != "answer" || got.Reason != "completed" {
		t.Errorf("%+v, want completed", got)
	}
	if len(chat.causes) > 0 {
		t.Error("the stream was stopped:", <-chat.causes)
	}
}

// TestClientThatReadsToTheEndHasNotLeft checks that closing a connection after the terminator is no leaving.
func TestClientThatReadsToTheEndHasNotLeft(t *testing.T) {
	url, _ := start(t, nil)
	path, body := chatRoute("start m say one end x")
	readUntil(t, url, path, "s", body, "[DONE]", 1)()
	if got := taleOf(t, url, "s", func(told tale) bool { return told.State == "ended" }); got.Extent != "" || got.Reason != "completed" {
		t.Errorf("%+v", got)
	}
}

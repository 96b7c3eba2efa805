package edge_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
)

// response returns a request of OpenAI's Responses API for a script.
func response(script string, more string) string {
	return `{"model":"m","input":"` + script + `"` + more + `}`
}

// A lastEvent is the last event of a stream.
type lastEvent struct {
	Type     string
	Response struct {
		ID, Status string
		Error      struct{ Code, Message string }
		Output     []struct {
			Content []struct{ Text string }
		}
	}
	Whence struct {
		Reason, Origin, Param string
		Path                  []string
	}
}

func lastOf(t *testing.T, body string) (e lastEvent) {
	t.Helper()
	at := strings.LastIndex(body, "\ndata: ")
	if at < 0 {
		t.Fatalf("no event in %q", body)
	}
	if err := json.Unmarshal([]byte(body[at+len("\ndata: "):]), &e); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return e
}

func TestResponsesAreStreamedToTheirEnd(t *testing.T) {
	url, _ := start(t, nil)
	resp := ask(t, http.MethodPost, url+"/v1/responses", response("start m say hello end x", `,"stream":true`), "X-Request-Id", "mine")
	body := whole(t, resp)
	want := []string{
		"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
		"response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
	}
	last := lastOf(t, body)
	if got := eventNames(body); resp.StatusCode != http.StatusOK || !slices.Equal(got, want) || last.Response.ID != "resp_mine" || last.Whence.Reason != "completed" {
		t.Errorf("%d %v: %s", resp.StatusCode, resp.Header, body)
	}
	resp = ask(t, http.MethodPost, url+"/v1/responses", response("start m say hello end x", ""))
	if body := whole(t, resp); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"text":"hello"`) || !strings.Contains(body, `"status":"completed"`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestResponsesThatFailEndWithOneEvent: libraries raise an exception at the event error before it.
func TestResponsesThatFailEndWithOneEvent(t *testing.T) {
	url, _ := start(t, nil)
	for how, reason := range map[string]string{"fail peer_lost": "peer_lost", "fail draining": "draining", "panic oops": "internal", "": "internal"} {
		body, cut := strings.CutSuffix(whole(t, ask(t, http.MethodPost, url+"/v1/responses", response("start m say hello "+how, `,"stream":true`))), "CUT")
		if !cut {
			t.Errorf("%s: the body ends cleanly", how)
		}
		if whole := whole(t, ask(t, http.MethodPost, url+"/v1/responses", response("start m say hello "+how, `,"stream":true`), "originator", "codex_exec")); lastOf(t, whole).Type != "response.failed" || strings.HasSuffix(whole, "CUT") {
			t.Errorf("%s: Codex gets %s", how, whole)
		}
		names, last := eventNames(body), lastOf(t, body)
		if n := len(names); slices.Contains(names, "response.completed") || slices.Index(names, "error") != n-2 || slices.Index(names, "response.failed") != n-1 {
			t.Errorf("%s: %v", how, names)
		}
		if !strings.Contains(body, `_error","code":"`+last.Response.Error.Code+`","message":"`+last.Response.Error.Message+`","param":null,"whence":{"reason":"`+reason+`"`) {
			t.Errorf("%s: the event error is missing: %s", how, body)
		}
		if last.Response.Status != "failed" || last.Response.Error.Message == "" || last.Response.Error.Code == "" || last.Response.Output[0].Content[0].Text != "hello" ||
			last.Whence.Reason != reason || last.Whence.Origin != "chat-service" || strings.Join(last.Whence.Path, " > ") != "chat-service > api-service" {
			t.Errorf("%s: %+v", how, last)
		}
	}
}

func TestResponsesThatAreRefusedHaveAStatus(t *testing.T) {
	url, _ := start(t, nil)
	for script, status := range map[string]int{"fail invalid": 400, "fail not_found": 404, "fail overloaded": 429, "fail draining": 503, "fail peer_lost": 502} {
		for _, more := range []string{"", `,"stream":true`} {
			resp := ask(t, http.MethodPost, url+"/v1/responses", response(script, more))
			if body := whole(t, resp); resp.StatusCode != status || !strings.HasPrefix(body, `{"error":{"message":`) {
				t.Errorf("%s: %d %s", script, resp.StatusCode, body)
			}
		}
	}
	resp := ask(t, http.MethodPost, url+"/v1/responses", response("x", `,"store":"yes"`))
	if body := whole(t, resp); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, `"param":"store"`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestAResponseThatIsRefusedLateFails(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.HeadersAfter, c.KeepAlive = time.Millisecond, time.Millisecond })
	resp := ask(t, http.MethodPost, url+"/v1/responses", response("wait 1m", `,"stream":true`), "X-Request-Id", "late")
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), ":") { // the status has been sent
		t.Fatalf("%q: %v", lines.Text(), lines.Err())
	}
	whole(t, ask(t, http.MethodDelete, url+"/v1/streams/late", ""))
	var body strings.Builder
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), ":") {
			body.WriteString("\n" + lines.Text())
		}
	}
	names, last := eventNames(strings.TrimSpace(body.String())), lastOf(t, body.String())
	if !slices.Equal(names, []string{"response.created", "error", "response.failed"}) || last.Response.ID != "resp_late" || last.Response.Status != "cancelled" ||
		last.Response.Error.Message == "" || last.Whence.Reason != "user_stop" {
		t.Errorf("%s", body.String())
	}
}

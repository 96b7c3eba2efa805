package edge_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/logtest"
)

const (
	atOnce = `{"gaps":[7,0,0,0,0,0,0,0,0,0],"server":"nginx/1.22.1"}`
	smooth = `{"gaps":[0,0,0,7,0,0,0,0,0,0],"server":"whence"}`
)

// paced is a script of ten tokens, for readPaced.
var paced = "start m" + strings.Repeat(" say x hold x wait 15ms", 10) + " end x"

type verdict struct {
	Verdict, Proxy string
	Sent, Seen     struct{ Events, Bursts int }
}

// read reads a plain stream to its end, and returns its id.
func read(t *testing.T, url, script string, headers ...string) string {
	t.Helper()
	body := strings.Replace(asking(script), `"model"`, `"stream":true,"model"`, 1)
	resp := ask(t, http.MethodPost, url+"/v1/chat/completions", body, headers...)
	if got := whole(t, resp); !strings.Contains(got, "[DONE]") {
		t.Fatal(got)
	}
	return resp.Header.Get("X-Request-Id")
}

// readPaced reads a stream of the script paced to its end. The chat-service says each token some
// time after the client has read the token before, so no two tokens arrive together.
func readPaced(t *testing.T, resp *http.Response, chat *scriptedChat) (text string) {
	t.Helper()
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if text += lines.Text() + "\n"; strings.Contains(lines.Text(), `"x"`) {
			chat.release <- struct{}{}
		}
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	return text
}

// tell sends a reader's report about a stream.
func tell(t *testing.T, url, id, report string, headers ...string) (status int, v verdict) {
	t.Helper()
	resp := ask(t, http.MethodPost, url+"/v1/streams/"+id+"/seen", report, headers...)
	if err := json.Unmarshal([]byte(whole(t, resp)), &v); err != nil {
		t.Error(err)
	}
	return resp.StatusCode, v
}

func TestBufferingProxyIsLoggedOnceAMinute(t *testing.T) {
	var log logtest.Log
	url, chat := startLogging(t, &log, nil)
	for range 2 {
		resp := ask(t, http.MethodPost, url+"/v1/chat/completions", strings.Replace(asking(paced), "{", `{"stream":true,`, 1))
		if got := readPaced(t, resp, chat); !strings.Contains(got, "[DONE]") {
			t.Fatal(got)
		}
		id := resp.Header.Get("X-Request-Id")
		status, v := tell(t, url, id, atOnce, "X-Forwarded-For", "::1")
		if status != http.StatusOK || v.Verdict != "buffered" || v.Proxy != "nginx/1.22.1" || v.Sent.Events < 8 || v.Sent.Bursts < 8 || v.Seen.Events != 8 || v.Seen.Bursts != 1 {
			t.Errorf("%d %+v", status, v)
		}
		var story struct{ Delivery verdict }
		if err := json.Unmarshal([]byte(whole(t, ask(t, http.MethodGet, url+"/v1/streams/"+id, ""))), &story); err != nil || story.Delivery != v {
			t.Errorf("its story: %+v, %v", story, err)
		}
		if status, _ := tell(t, url, id, atOnce); status != http.StatusConflict {
			t.Errorf("a second report: %d", status)
		}
	}
	if text := log.String(); strings.Count(text, "a proxy collects tokens") != 1 || !strings.Contains(text, "proxy=nginx/1.22.1") {
		t.Error(text)
	}
}

func TestPromptReaderHasNoBufferingProxy(t *testing.T) {
	url, chat := start(t, nil)
	m := makeStream(t, url, paced)
	if text := readPaced(t, ask(t, http.MethodGet, url+m.Events, ""), chat); strings.Count(text, `"x"`) != 10 {
		t.Fatal(text)
	}
	if status, v := tell(t, url, m.ID, smooth); status != http.StatusOK || v.Verdict != "flowing" || v.Proxy != "" {
		t.Errorf("%d %+v", status, v)
	}
}

// TestDeliveryOverAWebSocketIsCounted checks that a WebSocket is measured as server-sent events
// are.
func TestDeliveryOverAWebSocketIsCounted(t *testing.T) {
	url, _ := start(t, nil)
	m := makeStream(t, url, "start m say x end x")
	readOver(t, url, m, "").End()
	if status, v := tell(t, url, m.ID, smooth); status != http.StatusOK || v.Sent.Events == 0 {
		t.Errorf("%d %+v", status, v)
	}
}

func TestOnlyReadersReportTheDelivery(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.TrustForwarded = true })
	plain, mine := read(t, url, "start m say x end x"), read(t, url, "start m say x end x", "Authorization", "Bearer me")
	kept := makeStream(t, url, "start m say x end x")
	events(t, ask(t, http.MethodGet, url+kept.Events+"?token="+kept.Token, ""))
	for _, c := range []struct {
		id, report string
		headers    []string
		want       int
	}{
		{"nobody", smooth, nil, 404},
		{"no+id", smooth, nil, 400},
		{mine, smooth, nil, 404},
		{mine, smooth, []string{"Authorization", "Bearer you"}, 404},
		{kept.ID, smooth, nil, 404},
		{plain, `{}`, nil, 400},
		{plain, smooth, []string{"Content-Type", "text/plain"}, 415},
		{plain, `{"gaps":[0,0,0,0,0,0,0,0,0,0],"via":"` + strings.Repeat("x", 5000) + `"}`, nil, 413},
		{plain, smooth, nil, 200}, // the requests above were not reports
		{mine, smooth, []string{"Authorization", "Bearer me"}, 200},
		{kept.ID + "/seen?token=" + kept.Token + "&", smooth, nil, 200},
	} {
		if status, _ := tell(t, url, c.id, c.report, c.headers...); status != c.want {
			t.Errorf("%s %v: %d, want %d", c.id, c.headers, status, c.want)
		}
	}
}

package edge_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	streamstory "github.com/whence-dev/whence/api-service/story"
)

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestEndedStreamsAreListedNewestFirst(t *testing.T) {
	url, _ := start(t, nil)
	for _, script := range []string{"start m say hi end x", "start m fail engine_failed", "start m say hi end x"} {
		post(t, url, script, true)
	}
	list := func(query string) []streamstory.Story {
		status, body := get(t, url+"/v1/streams"+query)
		var got struct{ Streams []streamstory.Story }
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d %s", query, status, body)
		}
		return got.Streams
	}
	for query, want := range map[string]string{
		"": "", "?state=live": "",
		"?state=ended":                      "completed engine_failed completed",
		"?state=ended&limit=2":              "completed engine_failed",
		"?state=ended&reason=engine_failed": "engine_failed",
		"?state=ended&reason=deadline":      "",
		"?state=ended&hop=chat-service":     "completed engine_failed completed",
	} {
		var reasons []string
		for _, s := range list(query) {
			reasons = append(reasons, s.Reason)
		}
		if got := strings.Join(reasons, " "); got != want {
			t.Errorf("%q lists %q, want %q", query, got, want)
		}
	}
	for query, param := range map[string]string{"?state=over": "state", "?state=ended&limit=x": "limit", "?limit=3": "limit", "?page=2": "page"} {
		if status, body := get(t, url+"/v1/streams"+query); status != http.StatusBadRequest || !strings.Contains(body, `"param":"`+param+`"`) {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
}

func TestWorkersAreThoseOfTheChatService(t *testing.T) {
	url, _ := start(t, nil)
	status, body := get(t, url+"/v1/workers")
	if status != http.StatusOK || !strings.HasPrefix(body, `{"workers":[{"name":"","target":"h:1","state":"down",`) {
		t.Errorf("%d %s", status, body)
	}
	lost, _ := start(t, func(c *edge.Config) {
		ln := listen(t)
		c.Chat = ln.Addr().String()
		_ = ln.Close()
	})
	if status, body := get(t, lost+"/v1/workers"); status < 500 || !strings.Contains(body, `"path":["chat-service","api-service"]`) {
		t.Errorf("without a chat-service: %d %s", status, body)
	}
}

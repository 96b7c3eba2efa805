package edge_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/logtest"
)

// TestPromptsAnswersAndKeysStayOutOfLogs: of streams that complete, fail, panic and are refused, the log, the metrics, the lists and
// the stories have no part of a prompt, an answer or a key.
func TestPromptsAnswersAndKeysStayOutOfLogs(t *testing.T) {
	keyed := keyFile(t, "keys: [{key: sk-canary, tenant: mine}]")
	logs := new(logtest.Log)
	url, port := startWithAdminLogging(t, logs, "127.0.0.1:0", keyed)
	seen := ""
	for name, script := range map[string]string{
		"completes": "start m say canary-answer end canary-prompt", "fails": "start m say canary-answer fail engine_failed canary-prompt x",
		"is refused": "fail invalid canary-prompt x", "panics": "start m say canary-answer panic bug canary-prompt x",
	} {
		for _, more := range []string{"", `,"stream":true`, `,"temperature":"canary-temperature"`, `,"canary-field":1`} {
			resp := ask(t, http.MethodPost, url+"/v1/chat/completions", strings.TrimSuffix(asking(script), "}")+more+"}", bearer("sk-canary")...)
			if body := whole(t, resp); more == "" && name == "completes" && !strings.Contains(body, "canary-answer") {
				t.Fatal(body) // otherwise the test looks for what is not there
			}
			id := resp.Header.Get("X-Request-Id")
			seen += whole(t, ask(t, http.MethodGet, url+"/v1/streams/"+id, "", bearer("sk-canary")...))
		}
	}
	whole(t, ask(t, http.MethodGet, url+"/v1/models", "", bearer("sk-canary-that-is-wrong")...))
	for _, path := range []string{"/v1/streams", "/v1/streams?state=ended", "/metrics"} {
		seen += whole(t, ask(t, http.MethodGet, "http://127.0.0.1:"+port+path, ""))
	}
	if !strings.Contains(logs.String(), "completed") || !strings.Contains(seen, "completed") || !strings.Contains(seen, "whence_stream_endings_total") {
		t.Fatalf("the log, or what operators see, lacks the streams: %.2000s", logs)
	}
	for _, secret := range []string{"canary-prompt", "canary-answer", "sk-canary"} {
		for where, text := range map[string]string{"the log": logs.String(), "what operators see": seen} {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s has %q: …%s…", where, secret, text[max(at-200, 0):min(at+100, len(text))])
			}
		}
	}
}

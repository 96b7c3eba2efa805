package edge_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestHeadersGoBeforeTheFirstToken: the status comes when a stream is admitted, and the first chunk
// with the first token, so that load tools measure the time of that token.
func TestHeadersGoBeforeTheFirstToken(t *testing.T) {
	url, chat := start(t, nil)
	resp := ask(t, http.MethodPost, url+"/v1/chat/completions", strings.Replace(asking("start m hold x say one end x"), "{", `{"stream":true,`, 1))
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.StatusCode)
	}
	close(chat.release)
	first, _, _ := strings.Cut(whole(t, resp), "\n")
	if !strings.HasPrefix(first, "data: ") || !strings.Contains(first, `"delta":{"role":"assistant","content":"one"}`) {
		t.Error(first)
	}
}

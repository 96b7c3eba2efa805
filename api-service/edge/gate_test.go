package edge_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
)

func TestPagesOfOtherOriginsAreRefused(t *testing.T) {
	const friend = "https://app.example"
	url, _ := start(t, func(c *edge.Config) { c.Origins, c.Hosts = []string{friend}, []string{"whence.test"} })
	request := func(method, path, host string, headers ...string) (*http.Response, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(asking("start m end x")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if host != "" {
			req.Host = host
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp, string(b)
	}
	for _, path := range []string{"/", "/assets/app.js", "/v1/models", "/v1/streams", "/v1/streams/x", "/healthz", "/nope"} {
		if resp, body := request(http.MethodGet, path, "evil.example:8080"); resp.StatusCode != http.StatusMisdirectedRequest || !strings.Contains(body, `"param":"Host"`) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
		for _, host := range []string{"", "localhost:1", "whence.test"} {
			if resp, body := request(http.MethodGet, path, host); resp.StatusCode == http.StatusMisdirectedRequest {
				t.Errorf("%s by %s: %d %s", path, host, resp.StatusCode, body)
			}
		}
	}
	if resp, _ := request(http.MethodPost, "/v1/streams", "evil.example"); resp.StatusCode != http.StatusMisdirectedRequest {
		t.Error(resp.StatusCode)
	}

	preflight := []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type, x-leave"}
	for origin, allowed := range map[string]bool{friend: true, "https://evil.example": false, "null": false} {
		resp, _ := request(http.MethodOptions, "/v1/chat/completions", "", append(preflight, "Origin", origin)...)
		ok := resp.StatusCode == http.StatusNoContent && resp.Header.Get("Access-Control-Allow-Origin") == origin &&
			resp.Header.Get("Access-Control-Allow-Headers") == "content-type, x-leave" && strings.Contains(resp.Header.Get("Access-Control-Allow-Methods"), "DELETE")
		if ok != allowed || !allowed && len(resp.Header.Get("Access-Control-Allow-Origin")) > 0 {
			t.Errorf("preflight from %s: %d %v", origin, resp.StatusCode, resp.Header)
		}
		for _, c := range [][2]string{{http.MethodGet, "/v1/models"}, {http.MethodPost, "/v1/streams"}, {http.MethodPost, "/v1/chat/completions"}, {http.MethodGet, "/nope"}} {
			resp, body := request(c[0], c[1], "", "Origin", origin)
			if exposed := resp.Header.Get("Access-Control-Expose-Headers"); allowed && (!strings.Contains(exposed, "X-Request-Id") || !strings.Contains(exposed, "request-id")) {
				t.Errorf("%v exposes %s", c, exposed)
			}
			if (resp.Header.Get("Access-Control-Allow-Origin") == origin) != allowed || allowed && resp.Header.Get("Vary") != "Origin" {
				t.Errorf("%v from %s: %v %s", c, origin, resp.Header, body)
			}
		}
	}
	if resp, _ := request(http.MethodOptions, "/v1/chat/completions", ""); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Error(resp.StatusCode)
	}
}

package edge_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/api-service/replay"
)

// TestOneTenantDoesNotFillTheLog checks that a tenant whose detached streams fill the log loses its largest stream,
// and that another tenant's stream continues.
func TestOneTenantDoesNotFillTheLog(t *testing.T) {
	keyed := keyFile(t, twoTenants)
	url, _ := start(t, func(c *edge.Config) { keyed(c); c.Replay = replay.Limits{Bytes: 100_000} })
	detached := append(bearer("me"), "X-Leave", "detach")
	large := makeStream(t, url, "start m pour 60 "+strings.Repeat("wait 50ms say x ", 500), detached...)
	small := makeStream(t, url, "start m pour 20 wait 1m", detached...)
	for _, m := range []struct {
		keptStream
		n int
	}{{large, 60_000}, {small, 20_000}} {
		resp := ask(t, http.MethodGet, url+m.Events, "", bearer("me")...)
		for n, buf := 0, make([]byte, 4096); n < m.n; {
			got, err := resp.Body.Read(buf)
			if n += got; err != nil {
				t.Fatal(n, err)
			}
		}
		_ = resp.Body.Close()
	}
	other := makeStream(t, url, "start m pour 30 end x", append(bearer("you"), "X-Leave", "detach")...)
	if all, text := events(t, ask(t, http.MethodGet, url+other.Events, "", bearer("you")...)); len(text) != 30_000 || all[len(all)-1].name != "ending" {
		t.Errorf("the other tenant's stream says %d bytes and ends with %v", len(text), all[len(all)-1])
	}
	if all, _ := events(t, ask(t, http.MethodGet, url+large.Events, "", bearer("me")...)); all[len(all)-1].name != "error" || !strings.Contains(all[len(all)-1].data, `"reason":"overloaded"`) {
		t.Errorf("the greedy tenant's largest stream ends with %v", all[len(all)-1])
	}
	if body := whole(t, ask(t, http.MethodGet, url+"/v1/streams", "", bearer("me")...)); !strings.Contains(body, small.ID) {
		t.Errorf("the greedy tenant's other stream does not run: %s", body)
	}
}

package edge_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	streamstory "github.com/whence-dev/whence/api-service/story"
)

// TestClientCannotForgeItsAddress: nginx appends the address that it knows to the client's header,
// and HAProxy adds a header line of its own.
func TestClientCannotForgeItsAddress(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.TrustForwarded = true })
	for name, lines := range map[string]string{
		"behind": "X-Forwarded-For: forged, 192.0.2.7\r\n",
		"below":  "X-Forwarded-For: forged\r\nX-Forwarded-For: 192.0.2.7\r\n",
		"alone":  "X-Forwarded-For: 192.0.2.7\r\n",
		"port":   "X-Forwarded-For: 192.0.2.7:4711\r\n",
		// An entry that is not an address is ignored; the peer is then the address of the
		// connection.
		"word": "X-Forwarded-For: unknown\r\n",
		"zone": "X-Forwarded-For: fe80::1%anything goes\r\n",
		"long": "X-Forwarded-For: " + strings.Repeat("9", 5000) + "\r\n",
	} {
		body := asking("start m say hi end x")
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: %s\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", name, lines, len(body), body)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		whole(t, resp)
		_ = conn.Close()
		_, told := get(t, url+"/v1/streams?state=ended&limit=1")
		var got struct{ Streams []streamstory.Story }
		if err := json.Unmarshal([]byte(told), &got); err != nil || len(got.Streams) != 1 || got.Streams[0].ID != name {
			t.Fatal(told, err)
		}
		want := "127.0.0.1:"
		if strings.Contains(lines, "192.0.2.7") {
			want = "192.0.2.7"
		}
		if peer := got.Streams[0].Hops[0].Peer; !strings.HasPrefix(peer, want) {
			t.Errorf("%s: the client is %q", name, peer)
		}
	}
}

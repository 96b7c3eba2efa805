package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	chatHead = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	inChunks = chatHead + "Transfer-Encoding: chunked\r\n\r\n"
)

// TestFramingOfBodiesIsBounded checks the answers to bodies whose framing is unusual, large or late.
func TestFramingOfBodiesIsBounded(t *testing.T) {
	url, _ := start(t, nil)
	brief, _ := start(t, func(c *edge.Config) { c.ReadTimeout = time.Second })
	body := asking("start m say x end x")
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
	long := strings.Repeat("x", connection.MaxHeader)
	many := strings.Repeat("X: 1\r\n", connection.MaxFields+1)
	for name, c := range map[string]struct {
		request string
		want    int
	}{
		"an extension":               {inChunks + fmt.Sprintf("%x;a=b;c=\"d\"\r\n%s\r\n0;e\r\n\r\n", len(body), body), http.StatusOK},
		"a trailer":                  {inChunks + chunk + "0\r\nX-Sum: 1\r\n\r\n", http.StatusOK},
		"a long trailer":             {inChunks + chunk + "0\r\nX-Sum: " + long, http.StatusRequestHeaderFieldsTooLarge},
		"many trailers":              {inChunks + chunk + "0\r\n" + many, http.StatusRequestHeaderFieldsTooLarge},
		"many fields":                {chatHead + many + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body), http.StatusRequestHeaderFieldsTooLarge},
		"a long extension":           {inChunks + "1;" + long, http.StatusBadRequest},
		"a large chunk after a 415":  {strings.Replace(inChunks, "application/json", "text/plain", 1) + "7fffffff\r\n" + long, http.StatusUnsupportedMediaType},
		"a long trailer after a 404": {strings.Replace(inChunks, "/v1/", "/v0/", 1) + "0\r\nX: " + long, http.StatusNotFound},
		"a short body":               {chatHead + "Content-Length: 100\r\n\r\n{", http.StatusRequestTimeout},
		"a long body, cut":           {chatHead + "Content-Length: 9000\r\n\r\n" + strings.Repeat(" ", 8500), http.StatusRequestTimeout},
		"a chunk that is late":       {inChunks + "5\r\n{", http.StatusRequestTimeout},
		"a trailer that is late":     {inChunks + chunk + "0\r\nX: ", http.StatusRequestTimeout},
		"HTTP/3":                     {"GET / HTTP/3.0\r\n\r\n", http.StatusHTTPVersionNotSupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := url
			if c.want == http.StatusRequestTimeout {
				at = brief
			}
			conn, r := connect(t, at)
			if _, err := io.WriteString(conn, c.request); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := whole(t, resp)
			if resp.StatusCode != c.want || c.want != http.StatusOK && !strings.Contains(got, `"origin":"api-service"`) {
				t.Errorf("%d, want %d: %s", resp.StatusCode, c.want, got)
			}
		})
	}
}

// TestUnreadBodiesAreSkipped: a connection is used again after a refusal, if the rest of the body is
// short, and closed if it is long.
func TestUnreadBodiesAreSkipped(t *testing.T) {
	url, _ := start(t, nil)
	const next = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, c := range map[string]struct {
		head, body string
		closes     bool
	}{
		"announced":                {"Content-Length: 5000\r\n", strings.Repeat("x", 5000), false},
		"in chunks":                {"Transfer-Encoding: chunked\r\n", "5\r\nxxxxx\r\n0\r\nA: b\r\n\r\n", false},
		"in chunks, long":          {"Transfer-Encoding: chunked\r\n", "100000\r\n" + strings.Repeat("x", 1<<20) + "\r\n0\r\n\r\n", true},
		"malformed":                {"Transfer-Encoding: chunked\r\n", "x\r\n", true},
		"a client that waits":      {"Content-Length: 10\r\nExpect: 100-continue\r\n", "", true},
		"a client that waits, too": {"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, r := connect(t, url)
			if _, err := io.WriteString(conn, "POST /nope HTTP/1.1\r\nHost: localhost\r\n"+c.head+"\r\n"+c.body+next); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != http.StatusNotFound {
				t.Fatal(resp, err)
			}
			_ = whole(t, resp)
			resp, err = http.ReadResponse(r, nil)
			if closed := err != nil; closed != c.closes {
				t.Errorf("after the refusal: %v", err)
			} else if !closed && whole(t, resp) == "" {
				t.Error("the next request gets no answer")
			}
		})
	}
}

// ahead bounds the bytes that a test sends ahead, which are far more than a server may take.
const ahead = 1 << 30

// TestClientsThatSendAheadAreCutOff: while a request is answered, a client may send a bounded number of
// bytes ahead. Then its connection is closed, and its stream ends.
func TestClientsThatSendAheadAreCutOff(t *testing.T) {
	url, chat := start(t, nil)
	stream := strings.TrimSuffix(asking("start m say x hold x"), "}")
	for name, body := range map[string]string{"a stream": stream + `,"stream":true}`, "a request": stream + "}"} {
		conn, r := connect(t, url)
		if _, err := fmt.Fprintf(conn, "%sX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n%s", chatHead, strings.ReplaceAll(name, " ", "-"), len(body), body); err != nil {
			t.Fatal(err)
		}
		if name == "a stream" {
			if _, err := r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		sent := sendUntilClosed(conn)
		if sent >= ahead {
			t.Errorf("%s: the server took %d bytes", name, sent)
		}
		if cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes)); cause.Reason != streamerr.ClientGone || !strings.Contains(cause.Message, "before its answer had ended") {
			t.Errorf("%s: the stream ends with %v", name, cause)
		}
	}
}

// sendUntilClosed sends bytes until the connection is closed, at most ahead bytes.
func sendUntilClosed(conn io.Writer) (sent int) {
	piece := make([]byte, 64<<10)
	for w := bufio.NewWriterSize(conn, 1); sent < ahead; {
		n, err := w.Write(piece)
		if sent += n; err != nil {
			break
		}
	}
	return sent
}

// TestLongBodiesOfOneCallerShareABound: unfinished long bodies take their share, the last one is
// refused at once, and the shares return.
func TestLongBodiesOfOneCallerShareABound(t *testing.T) {
	t.Parallel()
	url, _ := start(t, func(c *edge.Config) { c.MaxBody = edge.DefaultMaxBody })
	const callers = 5 // of 32 MiB; 128 MiB are allowed
	answers := make(chan *http.Response, callers)
	var conns []net.Conn
	for range callers {
		conn, r := connect(t, url)
		conns = append(conns, conn)
		sendText(t, conn, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", chatHead, edge.DefaultMaxBody, strings.Repeat(" ", 2<<20+1)))
		go func() {
			if resp, err := http.ReadResponse(r, nil); err == nil {
				answers <- resp
			}
		}()
	}
	if refused := polltest.Receive(t, "an answer", answers); refused.StatusCode != http.StatusTooManyRequests || refused.Header.Get("Retry-After") == "" {
		t.Error(refused.StatusCode, refused.Header)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	polltest.Eventually(t, "a long request is answered again", func() bool {
		resp := ask(t, http.MethodPost, url+"/v1/chat/completions", asking("start m end x")+strings.Repeat(" ", 3<<20))
		whole(t, resp)
		return resp.StatusCode == http.StatusOK
	})
}

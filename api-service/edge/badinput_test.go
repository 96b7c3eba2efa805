package edge_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/polltest"
)

// A badInput is a request, possibly malformed, and the status of its answer.
type badInput struct {
	raw  string // the bytes to send; "" for a request with path and body
	path string
	head string // further header lines
	body string
	want int
}

// bytes returns the bytes to send.
func (b badInput) bytes() string {
	if b.raw != "" {
		return b.raw
	}
	head := b.head
	if !strings.Contains(strings.ToLower(head), "content-type:") {
		head += "Content-Type: application/json\r\n"
	}
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s", b.path, head, len(b.body), b.body)
}

const (
	chatPath = "/v1/chat/completions"
	goodBody = `{"model":"m","messages":[{"role":"user","content":"start m say x end x"}]}`
)

// with returns goodBody with further members.
func with(members string) string { return strings.TrimSuffix(goodBody, "}") + "," + members + "}" }

// maxRefusal bounds the body of a refusal, in bytes: an error does not echo the request.
const maxRefusal = 4 << 10

// longInputs are requests whose invalid text is long.
func longInputs() map[string]badInput {
	all := map[string]badInput{}
	long := strings.Repeat("canary ", 1000)
	quoted := `"` + long + `"`
	for name, body := range map[string]string{
		"a field": with(quoted + ":1"), "a field below": `{"model":"m","messages":[{"role":"user","content":"x",` + quoted + ":1}]}",
		"a role": `{"model":"m","messages":[{"role":` + quoted + `,"content":"x"}]}`, "a part": `{"model":"m","messages":[{"role":"user","content":[{"type":` + quoted + "}]}]}",
		"a number": with(`"n":1` + strings.Repeat("0", 7000)), "a temperature": with(`"temperature":` + quoted), "a tier": with(`"service_tier":` + quoted),
		"a tool": with(`"tools":[{"type":` + quoted + "}]"), "a format": with(`"response_format":{"type":` + quoted + "}"), "a bias": with(`"logit_bias":{` + quoted + ":1}"),
		"a field twice": `{"model":"m",` + quoted[:4000] + `":1,` + quoted[:4000] + `":1}`, "no JSON": long,
	} {
		all["long: "+name] = badInput{path: chatPath, body: body, want: 400}
	}
	for path, body := range map[string]string{
		"/v1/messages": `{"model":"m","max_tokens":1,"messages":[{"role":` + quoted + `,"content":"x"}]}`, "/v1/responses": `{"model":"m","store":false,"input":[{"type":` + quoted + "}]}",
		"/generate": `{"text":"x",` + quoted + ":1}", "/v1/embeddings": `{"model":"m","input":"x","encoding_format":` + quoted + "}", "/v1/completions": `{"model":"m","prompt":"x","suffix":` + quoted + "}",
		"/api/chat": `{"model":"m","format":` + quoted + "}", "/api/show": `{"model":1,"name":` + quoted + "}",
		"/tokenize": `{"prompt":"x",` + quoted + ":1}",
	} {
		all["long: "+path] = badInput{path: path, body: body, want: 400}
	}
	for name, head := range map[string]string{"X-Leave": "X-Leave: " + long + "\r\n", "X-Request-Timeout": "X-Request-Timeout: " + long + "\r\n"} {
		all["long: "+name] = badInput{path: chatPath, head: head, body: goodBody, want: 400}
	}
	all["long: a route"] = badInput{path: "/v1/" + strings.Repeat("canary", 1000), body: goodBody, want: 404}
	all["long: an encoding"] = badInput{path: chatPath, head: "Content-Encoding: " + long + "\r\n", body: goodBody, want: 415}
	return all
}

func badChats() map[string]badInput {
	all := map[string]badInput{}
	for name, body := range map[string]string{
		"empty": "", "spaces": "   ", "null": "null", "an array": "[]", "a string": `"x"`, "a number": "1", "half": `{"model":`, "trailing": goodBody + "x",
		"two values": goodBody + goodBody, "single quotes": `{'model':'m'}`, "a comment": "/* */" + goodBody, "a trailing comma": `{"model":"m",}`,
		"NUL": "\x00", "UTF-16": "\xff\xfe{\x00}\x00", "bad UTF-8": strings.Replace(goodBody, "say", "say\xff", 1),
		"deep arrays": `{"model":"m","messages":` + strings.Repeat("[", 5000), "deep objects": strings.Repeat(`{"a":`, 1500) + "1" + strings.Repeat("}", 1500),
		"deep and closed": with(`"metadata":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000)),
		"a name twice":    with(`"model":"n"`), "a name twice, below": `{"model":"m","messages":[{"role":"user","role":"system","content":"x"}]}`,
		"no model": `{"messages":[{"role":"user","content":"x"}]}`, "model null": `{"model":null,"messages":[]}`, "model a number": `{"model":1,"messages":[]}`,
		"no messages": `{"model":"m"}`, "no message": `{"model":"m","messages":[]}`, "messages an object": `{"model":"m","messages":{}}`, "a message that is a string": `{"model":"m","messages":["x"]}`,
		"no role": `{"model":"m","messages":[{"content":"x"}]}`, "an unknown role": `{"model":"m","messages":[{"role":"robot","content":"x"}]}`, "content a number": `{"model":"m","messages":[{"role":"user","content":1}]}`,
		"an unknown part":  `{"model":"m","messages":[{"role":"user","content":[{"type":"smell"}]}]}`,
		"an unknown field": with(`"no_such_field":1`),
		"temperature text": with(`"temperature":"hot"`), "temperature high": with(`"temperature":1e9`), "temperature huge": with(`"temperature":1e999`), "temperature NaN": with(`"temperature":NaN`),
		"top_p high": with(`"top_p":2`), "n zero": with(`"n":0`), "n many": with(`"n":1000000`), "n a fraction": with(`"n":1.5`),
		"max_tokens negative": with(`"max_tokens":-1`), "max_tokens huge": with(`"max_tokens":99999999999999999999`),
		"stop a number": with(`"stop":1`),
		"stream text":   with(`"stream":"yes"`), "stream_options without stream": with(`"stream_options":{"include_usage":true}`),
		"seed text": with(`"seed":"x"`), "logit_bias array": with(`"logit_bias":[1]`), "logit_bias word": with(`"logit_bias":{"x":1}`), "top_logprobs without logprobs": with(`"top_logprobs":3`),
		"tools an object": with(`"tools":{"a":1}`), "a tool without a function": with(`"tools":[{"type":"function"}]`),
		"response_format text": with(`"response_format":"json"`), "a schema that is not a schema": with(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":1}}`),
		"timeout negative": with(`"timeout":-1`), "service_tier": with(`"service_tier":"first"`),
	} {
		all["chat: "+name] = badInput{path: chatPath, body: body, want: 400}
	}
	return all
}

func badHeaders() map[string]badInput {
	all := map[string]badInput{}
	for name, c := range map[string]struct {
		head string
		want int
	}{
		"X-Leave": {"X-Leave: maybe\r\n", 400}, "X-Leave without time": {"X-Leave: linger\r\n", 400}, "X-Leave negative": {"X-Leave: linger:-1s\r\n", 400},
		"X-Request-Timeout word": {"X-Request-Timeout: soon\r\n", 400}, "X-Request-Timeout 0": {"X-Request-Timeout: 0\r\n", 400}, "X-Request-Timeout NaN": {"X-Request-Timeout: NaN\r\n", 400},
		"no content type": {"Content-Type: \r\n", 415}, "text": {"Content-Type: text/plain\r\n", 415}, "form": {"Content-Type: application/x-www-form-urlencoded\r\n", 415},
		"multipart": {"Content-Type: multipart/form-data; boundary=x\r\n", 415}, "gzip": {"Content-Encoding: gzip\r\n", 415}, "two encodings": {"Content-Encoding: identity, gzip\r\n", 415},
	} {
		all["header: "+name] = badInput{path: chatPath, head: c.head, body: goodBody, want: c.want}
	}
	all["header: long idempotency key"] = badInput{path: "/v1/streams", head: "Idempotency-Key: " + strings.Repeat("k", 300) + "\r\n", body: goodBody, want: 400}
	return all
}

func badSurfaces() map[string]badInput {
	all := map[string]badInput{}
	for name, c := range map[string]struct {
		path, body string
		want       int
	}{
		"no such route": {"/v1/nowhere", "{}", 404}, "a route below": {chatPath + "/x", "{}", 404}, "dots": {"/v1/../../etc/passwd", "{}", 404},
		"a method": {"/v1/models", "{}", 405}, "events with POST": {"/v1/streams/x/events", "{}", 405},
		"completions: no prompt": {"/v1/completions", `{"model":"m"}`, 400}, "completions: a prompt of objects": {"/v1/completions", `{"model":"m","prompt":[{}]}`, 400},
		"completions: best_of": {"/v1/completions", `{"model":"m","prompt":"x","best_of":-1}`, 400},
		"embeddings: no input": {"/v1/embeddings", `{"model":"m"}`, 400}, "embeddings: a format": {"/v1/embeddings", `{"model":"m","input":"x","encoding_format":"gif"}`, 400},
		"generate: no text": {"/generate", `{}`, 400}, "generate: text and ids": {"/generate", `{"text":"x","input_ids":[1]}`, 400}, "generate: sampling": {"/generate", `{"text":"x","sampling_params":{"temperature":"hot"}}`, 400},
		"abort: no rid": {"/abort_request", `{}`, 400}, "abort: unknown": {"/abort_request", `{"rid":"none"}`, 404},
		"messages: no max_tokens": {"/v1/messages", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, 400}, "messages: a role": {"/v1/messages", `{"model":"m","max_tokens":1,"messages":[{"role":"robot","content":"x"}]}`, 400},
		"messages: thinking":  {"/v1/messages", `{"model":"m","max_tokens":1,"thinking":"yes","messages":[{"role":"user","content":"x"}]}`, 400},
		"count_tokens: empty": {"/v1/messages/count_tokens", `{}`, 400},
		"responses: no input": {"/v1/responses", `{"model":"m"}`, 400}, "responses: an item": {"/v1/responses", `{"model":"m","store":false,"input":[{"type":"smell"}]}`, 400},
		"streams: no messages": {"/v1/streams", `{"model":"m"}`, 400}, "tokenize: nothing": {"/tokenize", `{}`, 400}, "detokenize: text": {"/detokenize", `{"tokens":"x"}`, 400},
		"token of an unknown stream": {"/v1/streams/none/token", `{}`, 404}, "a report without gaps": {"/v1/streams/none/seen", `{"verdict":"complete"}`, 400},
		"large": {chatPath, with(`"user":"` + strings.Repeat("u", 20000) + `"`), 413},
	} {
		all["surface: "+name] = badInput{path: c.path, body: c.body, want: c.want}
	}
	return all
}

func badBytes() map[string]badInput {
	const start = "POST " + chatPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	all := map[string]badInput{}
	for name, c := range map[string]struct {
		raw  string
		want int
	}{
		"nonsense": {"nonsense\r\n\r\n", 400}, "TLS": {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400}, "HTTP/3": {"GET / HTTP/3.0\r\n\r\n", 505},
		"a length that is a word": {start + "Content-Length: ten\r\n\r\n", 400}, "a negative length": {start + "Content-Length: -5\r\n\r\n", 400}, "a huge length": {start + "Content-Length: 99999999999999999999\r\n\r\n", 400},
		"two lengths":                  {start + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n123456", 400},
		"a length and chunks":          {start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"an unknown transfer encoding": {start + "Transfer-Encoding: gzip\r\n\r\n", 400},
		"a chunk size that is a word":  {start + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n", 400}, "a huge chunk": {start + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 400},
		"a header without a colon": {"POST " + chatPath + " HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 400}, "a space before the colon": {"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", 400},
		"a NUL in a header": {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: b\x00c\r\n\r\n", 400},
		"a long header":     {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", 431},
		"no host":           {"GET /v1/models HTTP/1.1\r\n\r\n", 400}, "two hosts": {"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", 421},
		"another host":        {"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
		"a method of our own": {"BREW /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
		"an id of a stream":   {"GET /v1/streams/%20 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400}, "an unknown stream": {"GET /v1/streams/none HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
		"a cursor":                       {"GET /v1/streams/none/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: x\r\n\r\n", 404},
		"a WebSocket without a key":      {"GET /v1/converse HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n", 400},
		"a WebSocket of another version": {"GET /v1/converse HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", 426},
		"no WebSocket":                   {"GET /v1/converse HTTP/1.1\r\nHost: localhost\r\n\r\n", 426},
	} {
		all["bytes: "+name] = badInput{raw: c.raw, want: c.want}
	}
	return all
}

// TestBadInputIsRefused checks that each input is answered at once, with a status that says whose
// fault it is, and leaves nothing behind in the service.
func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	url, _ := start(t, func(c *edge.Config) { c.ReadTimeout, c.Strict = 2*time.Second, true })
	addr := strings.TrimPrefix(url, "http://")
	n := 0
	for _, all := range []map[string]badInput{badChats(), badHeaders(), badSurfaces(), badBytes(), longInputs()} {
		for name, b := range all {
			n++
			status, body, err := sendRaw(t, addr, b.bytes())
			if status != b.want {
				t.Errorf("%s: status %d, not %d: %v %.300q", name, status, b.want, err, body)
			}
			if len(body) > maxRefusal {
				t.Errorf("%s: %d bytes", name, len(body))
			}
		}
	}
	if n < 80 {
		t.Errorf("only %d kinds", n)
	}
	if resp, body := post(t, url, "start m say fine end x", false); resp.StatusCode != http.StatusOK || !strings.Contains(body, "fine") {
		t.Errorf("afterwards: %d %s", resp.StatusCode, body)
	}
}

// sendRaw sends bytes on a connection of their own, and returns the answer.
func sendRaw(t *testing.T, addr, text string) (status int, body []byte, err error) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(polltest.Patience))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(conn, strings.NewReader(text)) // the service may close the connection before it has read everything
	}()
	defer func() { _ = conn.Close(); <-sent }()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, bytes.TrimSpace(body), err
}

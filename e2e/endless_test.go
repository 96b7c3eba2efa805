package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/tier"
)

var (
	endlessBytes = flag.Int64("endless", 64<<20, "number of `bytes` of each part in TestEndlessPartsAreBounded")
	endlessTable = flag.String("endless-table", "", "append the table of TestEndlessPartsAreBounded to this `file`")
)

// An endless is a part of a request that never ends.
type endless struct {
	begin string // the bytes before the part
	part  string // repeated
	// stream has the connection ask for a long stream, and read its beginning, before begin.
	stream string // the body of the request; "" for none
	want   string // the beginning of the answer, if there is one
}

const (
	chunkedPost = "POST /nope HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
	chunkedChat = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	textChat    = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
	openSocket  = "GET /v1/converse HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	longStory   = `{"model":"whence-tiny","max_tokens":900,"messages":[{"role":"user","content":"Tell me a long story about a fox."}]`
)

// endlessParts are the parts that any HTTP/1.1 listener may get, and those of api-service.
func endlessParts() (any, api map[string]endless) {
	x := strings.Repeat("x", 64<<10)
	any = map[string]endless{
		"request line":               {begin: "GET /", part: x},
		"header line":                {begin: "GET /nope HTTP/1.1\r\nHost: localhost\r\nX-A: ", part: x},
		"header fields":              {begin: "GET /nope HTTP/1.1\r\nHost: localhost\r\n", part: strings.Repeat("A: b\r\n", 10_000)},
		"trailer line":               {begin: chunkedPost + "2\r\n{}\r\n0\r\nX-T: ", part: x},
		"trailer fields":             {begin: chunkedPost + "2\r\n{}\r\n0\r\n", part: strings.Repeat("X: 1\r\n", 10_000)},
		"chunk size":                 {begin: chunkedPost, part: strings.Repeat("0", 64<<10)},
		"chunk extension":            {begin: chunkedPost + "2;", part: x},
		"chunks of a byte":           {begin: chunkedPost, part: strings.Repeat("1\r\nx\r\n", 10_000)},
		"one chunk":                  {begin: chunkedPost + "7fffffff\r\n", part: x},
		"announced body":             {begin: "POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", part: x},
		"requests, no answer read":   {part: strings.Repeat("GET /nope HTTP/1.1\r\nHost: localhost\r\n\r\n", 2_000)},
		"bytes after a last request": {begin: "GET /nope HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", part: x},
	}
	api = map[string]endless{
		"trailer of a chat":            {begin: chunkedChat + "2\r\n{}\r\n0\r\nX-T: ", part: x, want: "HTTP/1.1 4"},
		"trailer fields of a chat":     {begin: chunkedChat + "2\r\n{}\r\n0\r\n", part: strings.Repeat("X: 1\r\n", 10_000), want: "HTTP/1.1 4"},
		"chunk of a chat":              {begin: chunkedChat + "7fffffff\r\n", part: x, want: "HTTP/1.1 413 "},
		"chunk after a 415":            {begin: textChat + "7fffffff\r\n", part: x, want: "HTTP/1.1 415 "},
		"trailer after a 415":          {begin: textChat + "0\r\nX-T: ", part: x, want: "HTTP/1.1 4"},
		"extensions of a chat":         {begin: chunkedChat, part: strings.Repeat("1;"+strings.Repeat("e", 100)+"\r\n \r\n", 600), want: "HTTP/1.1 400 "},
		"bytes behind a stream":        {stream: longStory + `,"stream":true}`, part: x},
		"bytes behind a request":       {stream: longStory + `}`, part: x},
		"WebSocket, empty fragments":   {begin: openSocket + "\x01\x80abcd", part: strings.Repeat("\x00\x80abcd", 10_000)},
		"WebSocket, pings":             {begin: openSocket, part: strings.Repeat("\x89\x84abcdabcd", 6_000)},
		"WebSocket, pongs":             {begin: openSocket, part: strings.Repeat("\x8a\x80abcd", 10_000)},
		"WebSocket, a large message":   {begin: openSocket + "\x81\xff\x00\x00\x00\x00\x7f\xff\xff\xffabcd", part: x},
		"WebSocket, a message in bits": {begin: openSocket + "\x01\x81abcdx", part: strings.Repeat("\x00\x81abcdx", 10_000)},
	}
	return any, api
}

// unreadPart is how long a write may wait for a server that does not read.
const unreadPart = 300 * time.Millisecond

// A listener is an address of a process that takes bytes of strangers.
type listener struct {
	name, addr string
	process    *process
	tls        *tls.Config // nil without TLS
	parts      map[string]endless
}

// TestEndlessPartsAreBounded sends parts of requests that never end to each listener. The memory of the
// process stays bounded, and others are served.
func TestEndlessPartsAreBounded(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	asShipped(t)
	links := freeAddr(t)
	w := run(t, separate, flags{
		api:    []string{"--admin-listen", "127.0.0.1:0", "--read-timeout", "5s"},
		chat:   []string{"--metrics-listen", "127.0.0.1:0", "--pprof", "--link-port", links[strings.LastIndexByte(links, ':')+1:]},
		worker: []string{"--pace", "20"},
	})
	api, chat := w.processes[apiService], w.processes[chatService]
	pair, roots := newCertificate(t)
	front := service(t, apiService, "127.0.0.1:0", []string{"--chat", w.chat, "--tls-cert", pair.Cert, "--tls-key", pair.Key, "--read-timeout", "5s"})
	anyone, clients := endlessParts()
	symbols := map[string]endless{"symbols": {begin: "POST /debug/pprof/symbol HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", part: "10000\r\n" + strings.Repeat("0x400000+", 1<<16/9) + strings.Repeat("+", 1<<16%9) + "\r\n"}}
	over := tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
	for _, l := range []listener{
		{"api-service", w.api, api, nil, anyone},
		{"api-service", w.api, api, nil, clients},
		{"api-service, TLS", front.listening(t), front, &over, anyone},
		{"api-service, TLS", front.listening(t), front, &over, clients},
		{"api-service, admin", api.logged(t, "its admin listener", func(r record) bool { return r.Msg == "serving operators" }).Addr, api, nil, anyone},
		{"api-service, admin", api.logged(t, "its admin listener", func(r record) bool { return r.Msg == "serving operators" }).Addr, api, nil, symbols},
		{"chat-service, metrics", chat.logged(t, "its metrics", func(r record) bool { return r.Msg == "serving metrics" }).Addr, chat, nil, anyone},
		{"chat-service, metrics", chat.logged(t, "its metrics", func(r record) bool { return r.Msg == "serving metrics" }).Addr, chat, nil, symbols},
		{"chat-service, gRPC", w.chat, chat, nil, anyone},
		{"chat-service, links", links, chat, nil, anyone},
		{"llm-worker, gRPC", w.worker, w.processes[llmWorker], nil, anyone},
	} {
		for name, part := range l.parts {
			l.try(t, name, part)
		}
	}
	w.works(t)
}

// try sends a part to a listener.
func (l *listener) try(t *testing.T, name string, e endless) {
	t.Helper()
	conn, err := net.Dial("tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	if l.tls != nil {
		conn = tls.Client(conn, l.tls)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	r := bufio.NewReader(conn)
	begin := e.begin
	if e.stream != "" {
		begin = fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(e.stream), e.stream)
	}
	if _, err := io.WriteString(conn, begin); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(e.stream, "true") {
		if _, err := r.Peek(1); err != nil {
			t.Fatal(err)
		}
	}
	before, burnt := l.process.resetPeak(t), l.process.cpu(t)
	sent := int64(0)
	for err == nil && sent < *endlessBytes {
		var n int
		_ = conn.SetWriteDeadline(time.Now().Add(unreadPart)) // a server that reads no more is bounded, too
		n, err = io.WriteString(conn, e.part)
		sent += int64(n)
	}
	_ = conn.SetReadDeadline(time.Now().Add(unreadPart)) // there may be no answer, or a reset has overtaken it
	answer, _ := r.ReadString('\n')
	grown := l.process.peak(t) - before
	l.row(t, name, sent, grown, l.process.cpu(t)-burnt, answer)
	if grown > floodMemory {
		t.Errorf("%s: %s: the server's memory grew by %d MiB", l.name, name, grown>>20)
	}
	if answer != "" && !strings.HasPrefix(answer, e.want) {
		t.Errorf("%s: %s: the answer is %q, want %q", l.name, name, answer, e.want)
	}
}

// row writes a row of the table.
func (l *listener) row(t *testing.T, part string, sent, grown int64, burnt time.Duration, answer string) {
	t.Helper()
	const mib = 1 << 20
	row := fmt.Sprintf("| %s | %s | %.1f | %d | %d | %.24q |\n", l.name, part, float64(sent)/mib, grown/mib, burnt.Milliseconds(), strings.TrimSpace(answer))
	appendTable(t, *endlessTable, row)
}

// resetPeak makes peak measure from now on, and returns the resident memory of the process, in bytes.
func (p *process) resetPeak(t *testing.T) int64 {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Pid()), []byte("5"), 0); err != nil {
		t.Skip(err) // only Linux has this file
	}
	return p.memory(t)
}

// peak returns the largest resident memory of the process since resetPeak, in bytes.
func (p *process) peak(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	kb, err := strconv.ParseInt(string(bytes.Fields(rest)[0]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

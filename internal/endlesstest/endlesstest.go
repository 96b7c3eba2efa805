// Package endlesstest has HTTP answers with a part that never ends, for tests of clients.
package endlesstest

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// An Answer is the beginning of an answer, and the part that is repeated until the client closes
// the connection.
type Answer struct{ Begin, Part string }

// page is a part without a line's end.
var page = strings.Repeat("a", 64<<10)

// Answers has an answer for each part of HTTP that may be endless.
var Answers = map[string]Answer{
	"status line":     {"HTTP/1.1 200 ", page},
	"header":          {"HTTP/1.1 200 OK\r\nX: ", page},
	"headers":         {"HTTP/1.1 200 OK\r\n", strings.Repeat("X: y\r\n", 1000)},
	"interim answers": {"", strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n", 1000)},
	"body":            {"HTTP/1.1 200 OK\r\n\r\n", page},
	"long body":       {"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", page},
	"string":          {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\":\"", page},
	"nesting":         {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", strings.Repeat(`{"a":`, 10_000)},
	"array":           {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\":[1", strings.Repeat(",1", 10_000)},
	"event":           {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ", page},
	"comments":        {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", strings.Repeat(": a\n\n", 10_000)},
	"chunk":           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\n", page},
	"size of a chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1", strings.Repeat("0", 64<<10)},
	"extension":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", page},
	"trailer":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", page},
	"refusal":         {"HTTP/1.1 503 Service Unavailable\r\n\r\n", page},
	"error page":      {"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n\r\n{\"error\":{\"message\":\"", page},
}

// ServeHTTP implements http.Handler.
func (a Answer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()     //nolint:errcheck // the client has closed it
	part := []byte(a.Part) // once, so that Allocated counts what the client allocates
	for _, err = io.WriteString(conn, a.Begin); err == nil; _, err = conn.Write(part) {
	}
}

// Allocated returns the bytes that the process allocates during call.
func Allocated(t testing.TB, call func()) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

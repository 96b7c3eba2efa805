package schedule

import (
	"strings"
	"time"
)

// A Stranger is a client of api-service without a stream. It sends a text of Strange in pieces, and reads
// until api-service closes the connection.
type Stranger struct {
	At    time.Duration
	Which int  // index in Strange
	Piece int  // bytes
	Plain bool // also if other clients use TLS
}

// strange begins requests whose body has no announced length.
const strange = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

// health is a request that is answered, and last the last one of a connection.
const (
	health = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	last   = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
)

// Strange are what strangers send, and the statuses of the answers: mistakes, other protocols, scans, and
// what a slow or broken program sends.
var Strange = []struct {
	Name, Text string
	Answers    []int
}{
	{"nothing", "", nil},
	{"a probe", last, []int{200}},
	{"probes of a load balancer", health + "\r\n\r\n" + last, []int{200, 200}},
	{"a probe in HTTP/1.0", "GET /healthz HTTP/1.0\r\n\r\n", []int{200}},
	{"a page that is not there", "GET /index.php HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", []int{404}},
	{"another method", "PATCH /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", []int{405}},
	{"HTTP/2 without negotiation", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", nil},
	{"HTTP/3 in a request line", "GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", []int{505}},
	{"a greeting of TLS", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", []int{400}},
	{"another protocol", "EHLO localhost\r\n", []int{400}},
	{"a field without a colon", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nnonsense\r\n\r\n", []int{400}},
	{"many fields", strings.Replace(last, "\r\n\r\n", "\r\n"+strings.Repeat("X: y\r\n", 300)+"\r\n", 1), []int{431}},
	{"a long field", "GET /healthz HTTP/1.1\r\nCookie: " + strings.Repeat("c", 80<<10), []int{431}},
	{"a part of a header", "GET /healthz HTTP/1.1\r\nHost: loc", []int{408}},
	{"a part of a body", "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", []int{408}},
	{"a body that nobody reads", "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello" + last, []int{405, 200}},
	{"chunks that nobody reads", "POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + last, []int{405, 200}},
	{"a body that is too long", "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 300_000), []int{413}},
	{"chunks without an end", strange + strings.Repeat("1000\r\n"+strings.Repeat("x", 0x1000)+"\r\n", 100), []int{413}},
	{"chunks with all that they may have", strange + "5 ;a=\"b\"\r\n{\"a\":\r\n02\r\n1}\r\n0\r\nExpires: now\r\nX-Y: z\r\n\r\n", []int{400}},
	{"a size that is none", strange + "g\r\n", []int{400}},
	{"a size without an end", strange + strings.Repeat("0", 20_000), []int{400}},
	{"a size that is too large", strange + "ffffffffffffffff\r\n", []int{400}},
	{"a chunk that is too long", strange + "1\r\nab\r\n", []int{400}},
	{"an extension with a bare line feed", strange + "1;\n", []int{400}},
	{"a trailer that is none", strange + "0\r\n:\r\n\r\n", []int{400}},
	{"a trailer with a space", strange + "0\r\nX Y: z\r\n\r\n", []int{400}},
}

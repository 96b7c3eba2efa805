// Package wstest is a WebSocket client for tests. It can also violate the protocol.
package wstest

import (
	"bufio"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
)

// The opcodes of frames.
const (
	Text   = 1
	Binary = 2
	Close  = 8
	Ping   = 9
	Pong   = 10
)

// A Client is the client's end of a WebSocket.
type Client struct {
	net.Conn
	t  testing.TB
	in *bufio.Reader
}

// A Refusal is the answer to a handshake that the server has refused.
type Refusal struct {
	Status int
	Header http.Header
	Body   string
}

// Dial opens a WebSocket at a URL that begins with http://. headers are pairs of names and values.
// If the server refuses the handshake, Dial returns the server's answer and no Client.
func Dial(t testing.TB, address string, headers ...string) (*Client, *Refusal) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	return Over(t, conn, address, headers...)
}

// Over is Dial over an existing connection, which it closes at the end of the test.
func Over(t testing.TB, conn net.Conn, address string, headers ...string) (*Client, *Refusal) {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 16)
	_, _ = rand.Read(key) // never fails
	var request strings.Builder
	fmt.Fprintf(&request, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n",
		u.RequestURI(), u.Host, base64.StdEncoding.EncodeToString(key))
	for i := 0; i+1 < len(headers); i += 2 {
		request.WriteString(headers[i] + ": " + headers[i+1] + "\r\n")
	}
	if _, err := io.WriteString(conn, request.String()+"\r\n"); err != nil {
		t.Fatal(err)
	}
	c := &Client{Conn: conn, t: t, in: bufio.NewReader(conn)}
	_ = c.SetReadDeadline(time.Now().Add(polltest.Patience))
	resp, err := http.ReadResponse(c.in, nil) //nolint:bodyclose // the body of a refusal is read, and other answers have no body
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(resp.Body)
		return nil, &Refusal{resp.StatusCode, resp.Header, string(body)}
	}
	return c, &Refusal{resp.StatusCode, resp.Header, ""}
}

// Frame returns a masked frame. final is false for a frame that a continuation follows.
func Frame(opcode byte, final bool, payload []byte) []byte {
	b := []byte{opcode, 0x80}
	if final {
		b[0] |= 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b[1] |= byte(n)
	case n < 1<<16:
		b[1] |= 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] |= 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	mask := [4]byte{0x12, 0x34, 0x56, 0x78}
	b = append(b, mask[:]...)
	for i, v := range payload {
		b = append(b, v^mask[i%4])
	}
	return b
}

// Send sends a message.
func (c *Client) Send(opcode byte, payload []byte) {
	c.t.Helper()
	c.Raw(Frame(opcode, true, payload))
}

// Say sends a text message.
func (c *Client) Say(text string) {
	c.t.Helper()
	c.Send(Text, []byte(text))
}

// Raw sends bytes.
func (c *Client) Raw(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// Read returns the next frame.
func (c *Client) Read() (opcode byte, payload []byte, err error) {
	_ = c.SetReadDeadline(time.Now().Add(polltest.Patience))
	var head [2]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, nil, err
	}
	if head[0]&0x80 == 0 || head[1]&0x80 != 0 {
		return 0, nil, fmt.Errorf("a server's frame must be final and unmasked: %x", head)
	}
	size := uint64(head[1])
	var long [8]byte
	switch size {
	case 126:
		_, err = io.ReadFull(c.in, long[6:])
		size = binary.BigEndian.Uint64(long[:])
	case 127:
		_, err = io.ReadFull(c.in, long[:])
		size = binary.BigEndian.Uint64(long[:])
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(c.in, payload)
	return head[0] & 0xf, payload, err
}

// Next returns the next message of the server, and answers pings.
func (c *Client) Next() (opcode byte, payload []byte) {
	c.t.Helper()
	for {
		opcode, payload, err := c.Read()
		switch {
		case err != nil:
			c.t.Fatal(err)
		case opcode == Ping:
			c.Send(Pong, payload)
		case opcode != Pong:
			return opcode, payload
		}
	}
}

// Until reads text messages until one has the given member, and returns the member's value.
func (c *Client) Until(member string) json.RawMessage {
	c.t.Helper()
	for {
		opcode, payload := c.Next()
		var m map[string]json.RawMessage
		if opcode != Text || json.Unmarshal(payload, &m) != nil {
			c.t.Fatalf("frame %d: %s", opcode, payload)
		}
		if v, ok := m[member]; ok {
			return v
		}
		if m["error"] != nil {
			c.t.Fatalf("%s", payload)
		}
	}
}

// An Ending is how a WebSocket ended.
type Ending struct {
	Messages []string // text messages; the last one is the ending
	Binary   int      // binary messages
	Code     int
	Text     string
}

// Last returns the last text message.
func (e Ending) Last() string {
	if len(e.Messages) == 0 {
		return ""
	}
	return e.Messages[len(e.Messages)-1]
}

// End reads to the close frame, answers it, and checks that the server then closes the connection.
func (c *Client) End() Ending {
	c.t.Helper()
	var e Ending
	for {
		opcode, payload := c.Next()
		switch opcode {
		case Text:
			e.Messages = append(e.Messages, string(payload))
		case Binary:
			e.Binary++
		case Close:
			if len(payload) < 2 {
				c.t.Fatalf("the close frame has no code: %x", payload)
			}
			e.Code, e.Text = int(binary.BigEndian.Uint16(payload)), string(payload[2:])
			_, _ = c.Write(Frame(Close, true, payload[:2])) // fails if the server has closed first
			if _, _, err := c.Read(); err == nil || strings.Contains(err.Error(), "timeout") {
				c.t.Fatalf("the server does not close the connection: %v", err)
			}
			return e
		}
	}
}

// RawEnd writes bytes, and then closes the client's half of the connection.
func (c *Client) RawEnd(b []byte) {
	c.t.Helper()
	c.Raw(b)
	if err := c.tcp().CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

// CloseFrame returns a close frame with a code.
func CloseFrame(code int) []byte {
	return Frame(Close, true, binary.BigEndian.AppendUint16(nil, uint16(code)))
}

// Reset resets the connection, which must be TCP.
func (c *Client) Reset() {
	_ = c.tcp().SetLinger(0)
	_ = c.Close()
}

func (c *Client) tcp() *net.TCPConn {
	c.t.Helper()
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		c.t.Fatalf("%T is not TCP", c.Conn)
	}
	return tcp
}

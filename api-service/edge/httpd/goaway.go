package httpd

import (
	"bytes"
	"errors"

	"github.com/cloudwego/hertz/pkg/app"
	"golang.org/x/net/http2"
)

// preface is the method of the request line that begins every HTTP/2 connection.
const preface = "PRI"

// GoAway ends a connection whose client speaks HTTP/2 without negotiation, in the client's own
// protocol: SETTINGS, and GOAWAY with the code HTTP_1_1_REQUIRED and a text. It returns false, and
// does nothing, if the client speaks something else.
func GoAway(c *app.RequestContext, text string) bool {
	if string(c.Method()) != preface {
		return false
	}
	var out bytes.Buffer
	frames := http2.NewFramer(&out, nil)
	_ = frames.WriteSettings()
	_ = frames.WriteGoAway(0, http2.ErrCodeHTTP11Required, []byte(text)) // a buffer takes every frame
	conn := c.GetConn()
	if _, err := conn.WriteBinary(out.Bytes()); err == nil {
		_ = conn.Flush() // fails only if the client has gone
	}
	c.Response.HijackWriter(noWriter{})
	return true
}

// A noWriter replaces a response that has been written.
type noWriter struct{}

// Write implements network.ExtWriter.
func (noWriter) Write([]byte) (int, error) {
	return 0, errors.New("httpd: the connection was answered")
}

// Flush implements network.ExtWriter.
func (noWriter) Flush() error { return nil }

// Finalize implements network.ExtWriter.
func (noWriter) Finalize() error { return nil }

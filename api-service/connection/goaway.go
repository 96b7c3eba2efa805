package connection

import (
	"bytes"

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
	if r, ok := c.GetConn().(*request); ok {
		if r.writeAll(out.Bytes()) {
			r.Free(true)
		} else {
			r.Reset()
		}
	}
	return true
}

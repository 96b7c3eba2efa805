package exchange

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"

	"github.com/cloudwego/hertz/pkg/app"
)

// sessionHeaders are the request headers in which agents name the conversation that a request
// belongs to, by falling precision.
var sessionHeaders = []string{"x-claude-code-session-id", "session_id", "session-id", "thread-id", "x-session-id", "x-session-affinity", "conversation_id"}

// maxSession bounds a session, in bytes.
const maxSession = 256

// Session returns the session that the headers of a request name, or "". A session affects only the
// choice of the worker. A name that is too long, or no text, is replaced by its digest.
func Session(c *app.RequestContext) string {
	for _, header := range sessionHeaders {
		switch name := c.GetHeader(header); {
		case len(name) > maxSession || !utf8.Valid(name):
			digest := sha256.Sum256(name)
			return hex.EncodeToString(digest[:])
		case len(name) > 0:
			return string(name)
		}
	}
	return ""
}

package exchange

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// messages is the root of the routes of Anthropic's API.
const messages = "/v1/messages"

// Form returns the form of the API that a request's path belongs to. All other routes use OpenAI's
// form.
func Form(c *app.RequestContext) *call.Form {
	if rest, below := strings.CutPrefix(string(c.Path()), messages); below && (rest == "" || rest[0] == '/') {
		return &anthropic.Form
	}
	return &openai.Form
}

// keyHeader is where clients of Anthropic's API send a key.
const keyHeader = "x-api-key"

// TakeKey moves the API key of a request to the Authorization, where all code expects it. A request
// with an Authorization keeps that one.
func TakeKey(c *app.RequestContext) {
	key := string(c.GetHeader(keyHeader))
	c.Request.Header.Del(keyHeader)
	if key != "" && len(c.GetHeader(keys.Header)) == 0 {
		c.Request.Header.Set(keys.Header, "Bearer "+key)
	}
}

// Error answers with an error in the form of the request's API, and returns the status that the
// client gets.
func Error(c *app.RequestContext, status int, err *streamerr.Error) int {
	if err.RetryAfter > 0 {
		c.Header("Retry-After", strconv.Itoa(int(math.Ceil(err.RetryAfter.Seconds()))))
	}
	status, body := Form(c).Refusal(status, err, string(c.Response.Header.Peek(IDHeader)))
	c.Data(status, "application/json", body)
	return status
}

// Version is middleware: it refuses requests for a version of Anthropic's API that is not spoken
// here.
func (d *Desk) Version(ctx context.Context, c *app.RequestContext) {
	if err := anthropic.CheckVersion(string(c.GetHeader(anthropic.VersionHeader))); err != nil {
		ID(c)
		c.Abort()
		d.Refuse(c, err)
		return
	}
	c.Next(ctx)
}

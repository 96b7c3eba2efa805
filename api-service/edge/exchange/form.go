package exchange

import (
	"math"
	"strconv"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/form"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Form returns the form of the API that a request belongs to. The list of models belongs to the API
// of its client.
func Form(c *app.RequestContext) *call.Form {
	path := string(c.Path())
	if (path == modelsPath || strings.HasPrefix(path, modelsPath+"/")) && SpeaksAnthropic(c) {
		return &anthropic.Form
	}
	return form.Of(path)
}

const modelsPath = "/v1/models"

// SpeaksAnthropic reports whether a request comes from a client of Anthropic's API.
func SpeaksAnthropic(c *app.RequestContext) bool {
	return len(c.GetHeader(anthropic.VersionHeader)) > 0
}

// keyHeader is the header in which clients of Anthropic's API send a key.
const keyHeader = "x-api-key"

// TakeKey moves the API key of a request to the Authorization header, where all code expects it. A
// request that already has an Authorization header keeps that.
func TakeKey(c *app.RequestContext) {
	key := string(c.GetHeader(keyHeader))
	c.Request.Header.Del(keyHeader)
	if key != "" && len(c.GetHeader(keys.Header)) == 0 {
		c.Request.Header.Set(keys.Header, "Bearer "+key)
	}
}

// retryHeader tells the SDKs of OpenAI and Anthropic whether to repeat a request, whatever its
// status.
const retryHeader = "X-Should-Retry"

// Error answers with an error in the form of the request's API, and returns the status that the
// client gets.
func Error(c *app.RequestContext, status int, err *streamerr.Error) int {
	return fail(&c.Response, Form(c), status, err)
}

// fail fills r with an error, in an API's form, and returns the status that the client gets.
func fail(r *protocol.Response, form *call.Form, status int, err *streamerr.Error) int {
	if err.RetryAfter > 0 {
		r.Header.Set("Retry-After", strconv.Itoa(int(math.Ceil(err.RetryAfter.Seconds()))))
	}
	if err.Final() {
		r.Header.Set(retryHeader, "false")
	}
	status, body := form.Refusal(status, err, string(r.Header.Peek(IDHeader)))
	respond(r, status, body)
	return status
}

// respond fills r with a body.
func respond(r *protocol.Response, status int, body []byte) {
	r.SetStatusCode(status)
	r.Header.SetContentType("application/json")
	r.AppendBody(body)
}

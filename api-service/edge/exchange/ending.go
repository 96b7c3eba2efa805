package exchange

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// ErrorLine is the recorded status of a stream whose last event is an error. The recorded status of a
// completed stream is Done of its API's form, such as [DONE].
const ErrorLine = "error"

// Traced adds the trace context of the request's headers.
func Traced(conn context.Context, c *app.RequestContext) context.Context {
	return streamtrace.WithParent(conn, streamtrace.ReadParent(func(key string) string { return string(c.GetHeader(key)) }))
}

// RecordStatus records the status that the client gets.
func RecordStatus(record *ledger.Record, status int) {
	record.Events().Header(streamtrace.SendHeader, streamtrace.Up, strconv.Itoa(status))
}

// Completed answers a request with the one body of its completed stream.
func Completed(ctx context.Context, client *clientconn.Conn, body []byte, o rpc.Outcome) {
	RecordStatus(ledger.Of(ctx), http.StatusOK)
	if client.Respond(func(r *protocol.Response) { respond(r, http.StatusOK, body) }) == nil { // a failed Respond has closed the connection
		o.EndingSent(ctx, strconv.Itoa(http.StatusOK))
	}
}

// Failed answers a request in an API's form, whose stream has failed before anything was sent. param
// converts the name of a field in the IDL, which an inner hop uses, to the client's name.
func Failed(ctx context.Context, form *call.Form, client *clientconn.Conn, param func(inner string) string, o rpc.Outcome) {
	status := 0
	err := client.Respond(func(r *protocol.Response) {
		status = fail(r, form, o.Err.Reason.HTTPStatus(), Outward(param, o.Err))
		if status != streamerr.StatusClientClosed {
			RecordStatus(ledger.Of(ctx), status)
		}
	})
	if err == nil { // a failed Respond has closed the connection
		RecordEnding(ctx, strconv.Itoa(status), o)
	}
}

// RecordEnding records that the client was sent the ending, unless the client has left: a socket
// accepts data after its peer has gone.
func RecordEnding(ctx context.Context, code string, o rpc.Outcome) {
	if o.Reason() != streamerr.ClientGone {
		o.EndingSent(ctx, code)
	}
}

// Outward converts an error for the client: its field gets the name that the client used.
func Outward(param func(inner string) string, err *streamerr.Error) *streamerr.Error {
	if err.Param == "" {
		return err
	}
	out := *err
	if out.Param = param(err.Param); out.Param == "stream_id" {
		out.Param = IDHeader
	}
	if inner := strings.TrimPrefix(err.Param, "sampling."); inner != out.Param { // messages contain the field's name, too
		word := `\b` + regexp.QuoteMeta(inner)
		if !strings.HasSuffix(inner, "]") {
			word += `\b`
		}
		out.Message = regexp.MustCompile(word).ReplaceAllLiteralString(out.Message, out.Param)
	}
	return &out
}

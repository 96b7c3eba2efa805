package edge

import (
	"context"
	"strconv"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// toldError is the status of a stream whose last line is an error, as [DONE] is that of one that completed.
const toldError = "error"

// traced puts a stream where the request's headers say it belongs.
func traced(conn context.Context, c *app.RequestContext) context.Context {
	return streamtrace.WithParent(conn, streamtrace.ParseParent(string(c.GetHeader(streamtrace.Traceparent)), string(c.GetHeader(streamtrace.Tracestate))))
}

// toldStatus notes that the client is told the status.
func toldStatus(record *ledger.Record, status int) {
	record.Events().Header(streamtrace.SendHeader, streamtrace.Up, strconv.Itoa(status))
}

// answerError answers a stream that has failed before anything was sent. Where the client has left, nobody sees it.
func answerError(ctx context.Context, c *app.RequestContext, in *call.Call, o rpc.Outcome) {
	status := o.Err.Reason.HTTPStatus()
	exchange.Error(c, status, outward(in, o.Err))
	if status != streamerr.StatusClientClosed {
		toldStatus(ledger.Of(ctx), status)
	}
	toldEnding(ctx, strconv.Itoa(status), o)
}

// toldEnding notes that the client was told the ending, unless it has left: its socket takes what nobody reads.
func toldEnding(ctx context.Context, code string, o rpc.Outcome) {
	if o.Reason() != streamerr.ClientGone {
		o.Told(ctx, code)
	}
}

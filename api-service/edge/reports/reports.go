// Package reports takes readers' reports of how their stream arrived, and answers with a verdict:
// whether a proxy between the reader and the edge buffers tokens.
package reports

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/delivery"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/operate"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/story"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Reports serves the readers of one edge.
type Reports struct {
	Desk       *exchange.Desk
	Hop        *rpc.Hop
	Deliveries *delivery.Book
	Log        *slog.Logger

	warnings delivery.WarningLimit // rate limit of log lines about proxies
}

// Seen handles POST /v1/streams/{id}/seen: a reader reports how its stream arrived, and gets the
// verdict.
func (r *Reports) Seen(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	id := exchange.Caller(ctx).Refers(c.Param("id"))
	d, err := r.verdict(ctx, c, id)
	if err != nil {
		r.Desk.Refuse(c, err)
		return
	}
	ledger.At(r.Hop).Delivered(id, d)
	ledger.At(r.Hop).Metrics.Judged(delivery.Word(d.GetVerdict()))
	if d.GetVerdict() == streamv1.Verdict_VERDICT_BUFFERED && r.warnings.Due(time.Now()) {
		r.Log.Warn("a proxy collects tokens", "stream", id, "hop", r.Hop.Name, "proxy", d.GetProxy(),
			"events", d.GetSeen().GetEvents(), "sent_bursts", d.GetSent().GetBursts(), "seen_bursts", d.GetSeen().GetBursts())
	}
	exchange.JSON(c, story.NewDelivery(d).JSON())
}

// verdict reads a reader's report and returns the verdict.
func (r *Reports) verdict(ctx context.Context, c *app.RequestContext, id string) (*streamv1.Delivery, error) {
	small := *r.Desk
	small.MaxBody = delivery.MaxReport
	body, err := small.Body(c, "")
	if err != nil {
		return nil, err
	}
	report, err := delivery.Parse(body)
	if err != nil {
		return nil, err
	}
	if err := operate.CheckID(id); err != nil {
		return nil, err
	}
	caller := exchange.Caller(ctx)
	d := r.Deliveries.Find(id)
	if d == nil {
		return nil, access.Missing(id)
	}
	if anybodys := d.Owner == "" && d.Kept == nil && !caller.Keyed(); !anybodys {
		if err := caller.Read(d.Head(), c.Query(follow.TokenParam)); err != nil {
			return nil, err
		}
	}
	sent, events, first := d.Tell()
	if !first {
		return nil, exchange.WithStatus(http.StatusConflict, streamerr.New(streamerr.Invalid, "the reader has reported already"))
	}
	tokens := uint32(0)
	if !d.Part {
		tokens = ledger.At(r.Hop).Get(id).GetTokensIn()
	}
	proxy := delivery.Proxy(func(header string) string { return string(c.GetHeader(header)) }, report)
	return delivery.Judge(tokens, events, sent, report, proxy), nil
}

package edge

import (
	"context"
	"net/http"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/delivery"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/operate"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/story"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// delivers begins the record of how a stream is sent to one reader. kept is the head of a stream
// that can be read again, or nil.
func (e *Edge) delivers(c *app.RequestContext, id string, kept *replay.Head) *delivery.Delivery {
	d := &delivery.Delivery{Head: replay.Head{ID: id}}
	if kept != nil {
		d.Head, d.Kept = *kept, true
	} else if caller, err := e.caller(c); err == nil { // otherwise the request would have been refused
		d.Head.Owner = caller.Owner
	}
	return e.deliveries.Open(d)
}

// seen is POST /v1/streams/{id}/seen: a reader reports how its stream arrived, and gets the
// verdict.
func (e *Edge) seen(_ context.Context, c *app.RequestContext) {
	exchange.ID(c)
	id := c.Param("id")
	d, err := e.told(c, id)
	if err != nil {
		e.desk.Refuse(c, err)
		return
	}
	ledger.At(e.hop).Delivered(id, d)
	ledger.At(e.hop).Metrics.Judged(delivery.Word(d.GetVerdict()))
	if d.GetVerdict() == streamv1.Verdict_VERDICT_BUFFERED && e.collects.Due(time.Now()) {
		e.log.Warn("a proxy collects tokens", "stream", id, "hop", e.hop.Name, "proxy", d.GetProxy(),
			"events", d.GetSeen().GetEvents(), "sent_bursts", d.GetSent().GetBursts(), "seen_bursts", d.GetSeen().GetBursts())
	}
	exchange.JSON(c, story.NewDelivery(d).JSON())
}

// told reads a reader's report and returns the verdict.
func (e *Edge) told(c *app.RequestContext, id string) (*streamv1.Delivery, error) {
	small := *e.desk
	small.MaxBody = delivery.MaxReport
	body, err := small.Body(c)
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
	caller, err := e.readers.Caller(c)
	if err != nil {
		return nil, err
	}
	d := e.deliveries.Find(id)
	if d == nil {
		return nil, access.Missing(id)
	}
	if anybodys := d.Head.Owner == "" && !d.Kept && e.guard.Keys == nil; !anybodys {
		if err := e.guard.Read(caller, d.Head, c.Query(follow.TokenParam)); err != nil {
			return nil, err
		}
	}
	sent, events, first := d.Tell()
	if !first {
		return nil, exchange.WithStatus(http.StatusConflict, streamerr.New(streamerr.Invalid, "the reader has reported already"))
	}
	tokens := uint32(0)
	if !d.Part {
		tokens = ledger.At(e.hop).Get(id).GetTokensIn()
	}
	proxy := delivery.Proxy(func(header string) string { return string(c.GetHeader(header)) }, report)
	return delivery.Judge(tokens, events, sent, report, proxy), nil
}

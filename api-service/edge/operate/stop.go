package operate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/story"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// stopStream handles DELETE /v1/streams/{id}.
func (o *Operator) stopStream(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	o.stopByID(ctx, c, "id", c.Param("id"))
}

// abortRequest handles SGLang's POST /abort_request.
func (o *Operator) abortRequest(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	body, err := o.Body(c, exchange.Caller(ctx).Owner)
	if err != nil {
		o.Refuse(c, err)
		return
	}
	rid, err := story.ParseAbort(body)
	if err != nil {
		o.Refuse(c, err)
		return
	}
	o.stopByID(ctx, c, "rid", rid)
}

// stopByID ends a stream on any instance. The stop begins here, so a stream of this instance may
// use the whole grace, which the hops below share; a stop of another instance's stream carries the
// same budget to them. The stream of another api-service is stopped at a chat-service, because all
// api-services share the chat-services. Its ending travels up to the api-service that owns the
// stream. The stop names the owners whose streams the caller may stop, and each hop refuses to stop
// other streams. param is the request's name for the id.
func (o *Operator) stopByID(ctx context.Context, c *app.RequestContext, param, id string) {
	caller := exchange.Caller(ctx)
	if err := CheckID(id); err != nil {
		o.Refuse(c, err)
		return
	}
	id = caller.Refers(id)
	age, err := o.stop(ctx, id, stopOf(caller, o.Peer(c)), caller.Owners())
	if err != nil {
		o.Refuse(c, o.unknown(caller, param, id, err))
		return
	}
	c.Data(http.StatusAccepted, "application/json", story.Stopping(id, age))
}

// Stop ends a stream on any instance on behalf of the client that made it, and does not wait for the
// ending.
func (o *Operator) Stop(ctx context.Context, caller access.Caller, id string) error {
	_, err := o.stop(ctx, id, stopOf(caller, ""), caller.Owners())
	return err
}

func (o *Operator) stop(ctx context.Context, id string, cause *streamerr.Error, owners []string) (age time.Duration, err error) {
	age, ok := o.Hop.Live.Stop(id, cause, owners...)
	if ok {
		return age, nil
	}
	age, err = o.stopBelow(ctx, id, cause, owners)
	if kept := o.stopKept(ctx, id, cause, err == nil, owners); err != nil && kept {
		return 0, nil
	}
	return age, err
}

// stopOf returns the ending of a stream that a caller stops. Without a key file, any caller may stop
// streams of others, so the message names the address peer instead of the stream's client. peer is ""
// if the caller is known to be the client.
func stopOf(caller access.Caller, peer string) *streamerr.Error {
	if caller.Operates {
		return &streamerr.Error{Reason: streamerr.OperatorStop, Path: streamerr.NewPath(exchange.Operator), Message: "an operator asked for the stream to stop"}
	}
	e := &streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath(exchange.Client), Message: "the client asked for the stream to stop"}
	if peer != "" && !caller.Keyed() {
		if host, _, err := net.SplitHostPort(peer); err == nil {
			peer = host
		}
		e.Message = fmt.Sprintf("a request from %s asked for the stream to stop", peer)
	}
	return e
}

func (o *Operator) stopBelow(ctx context.Context, id string, cause *streamerr.Error, owners []string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	resp, err := o.Chats.Stop(ctx, &chatv1.StopRequest{Stream: &streamv1.StopStreamRequest{
		StreamId: id,
		Stop:     o.Hop.StopBelow(cause),
		Owners:   owners,
	}})
	if err != nil {
		return 0, err
	}
	return resp.GetStream().GetAge().AsDuration(), nil
}

// stopKept records the stop of a kept stream for the instance that takes the stream over. The
// api-service of the stream may have just died, so that no chat-service runs the stream, or may be
// frozen, so that it does not learn that a chat-service has stopped the stream.
func (o *Operator) stopKept(ctx context.Context, id string, cause *streamerr.Error, heard bool, owners []string) bool {
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	return o.Replay.Stop(ctx, id, string(streamerr.Via(o.Hop.Name, cause).JSON()), heard, func(h replay.Head) bool {
		return len(owners) == 0 || slices.Contains(owners, h.Owner)
	})
}

// why handles GET /v1/streams/{id}: the records of a stream from every hop that knows it. The owner
// of each record is checked, because two owners may have used the same id.
func (o *Operator) why(ctx context.Context, c *app.RequestContext) {
	exchange.ID(c)
	id := c.Param("id")
	if err := CheckID(id); err != nil {
		o.Refuse(c, err)
		return
	}
	caller := exchange.Caller(ctx)
	id = caller.Refers(id)
	owners := caller.Owners()
	var hops []*streamv1.Record
	if own := ledger.At(o.Hop).Get(id); own != nil && ledger.OwnedBy(own, owners...) {
		hops = append(hops, own)
	}
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	below, err := o.Chats.Why(ctx, id, owners...)
	hops = append(hops, below...)
	switch {
	case len(hops) > 0:
		exchange.JSON(c, story.New(hops).JSON())
	case owners != nil && errors.Is(err, streamerr.NotFound):
		o.Refuse(c, access.Missing(id)) // the same answer for an unknown id and for another owner's stream
	default:
		o.Refuse(c, o.unknown(caller, "id", id, err))
	}
}

// shownNames bounds the streams of one name that an error lists.
const shownNames = 5

// unknown returns the error for an id that names no stream. A client may have told an operator the id that it chose, which
// lacks the tag of its tenant, so the operator's error lists the streams of that name. param is the request's name for the id.
func (o *Operator) unknown(caller access.Caller, param, id string, err error) error {
	err = named(err, param)
	if !caller.Operates || !errors.Is(err, streamerr.NotFound) {
		return err
	}
	wants := func(r *streamv1.Record) bool { return access.Named(r.GetStreamId(), id) }
	records := ledger.At(o.Hop)
	found := append(records.Ended(shownNames, wants), slices.DeleteFunc(records.Live(), func(r *streamv1.Record) bool { return !wants(r) })...)
	if len(found) == 0 {
		return err
	}
	var ids []string
	for _, r := range found[:min(len(found), shownNames)] {
		ids = append(ids, r.GetStreamId())
	}
	out := *streamerr.As(err)
	out.Message = fmt.Sprintf("there is no stream %q; tenants have streams of that name: %s", id, strings.Join(ids, ", "))
	return &out
}

// named renames the field of an error of a hop below: param is the client's name for the stream's
// id.
func named(err error, param string) error {
	out := *streamerr.As(err)
	if out.Param == "stream_id" {
		out.Param = param
	}
	return &out
}

// CheckID refuses a text that cannot be the id of a stream.
func CheckID(id string) error {
	if stream.ValidID(id) {
		return nil
	}
	return streamerr.InvalidParam("id", "%.64q is not the id of a stream", id)
}

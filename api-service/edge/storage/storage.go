// Package storage serves stored responses of OpenAI's Responses API, on any instance: it shows,
// streams, cancels and deletes them.
package storage

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/route"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/readers"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/jsontext"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/responses"
	"github.com/whence-dev/whence/api-service/responses/archive"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// stopTimeout bounds the wait for the ending of a response that is stopped.
	stopTimeout = 5 * time.Second
	// endingTimeout bounds the wait for the ending of a response that a request continues: the
	// client of the response may have the ending before the log has it.
	endingTimeout = time.Second
)

// A Service serves stored responses. Its fields must not change while it is in use.
type Service struct {
	Desk    *exchange.Desk
	Replay  replay.Log
	Readers *readers.Readers
	// Stop ends a stream on any instance, and does not wait for the ending.
	Stop func(ctx context.Context, caller access.Caller, id string) error
}

// Routes adds the routes to h.
func (s *Service) Routes(h *route.Engine) {
	h.GET("/v1/responses/:id", s.handle(s.retrieve))
	h.DELETE("/v1/responses/:id", s.handle(s.remove))
	h.POST("/v1/responses/:id/cancel", s.handle(s.cancel))
	h.GET("/v1/responses/:id/input_items", s.handle(s.listInput))
}

// A request is a request about a stored response.
type request struct {
	c      *app.RequestContext
	caller access.Caller
	in     replay.Reader
	loaded *archive.Response // the state of the log when the request arrived
}

// id returns the id of the response.
func (q *request) id() string { return responses.IDPrefix + q.in.Head().ID }

// handle returns the handler that opens the response of a request, and answers it with serve.
func (s *Service) handle(serve func(conn context.Context, q *request) error) app.HandlerFunc {
	return func(conn context.Context, c *app.RequestContext) {
		exchange.ID(c)
		caller, id := exchange.Caller(conn), c.Param("id")
		in, loaded, err := s.open(conn, caller, id, c.Query(follow.TokenParam))
		if err != nil {
			s.Desk.Refuse(c, missing(id, err))
			return
		}
		defer in.Close()
		c.Header(exchange.IDHeader, in.Head().ID)
		if err := serve(conn, &request{c, caller, in, loaded}); err != nil {
			s.Desk.Refuse(c, err)
		}
	}
}

// open opens the response with this id for its owner, and loads it. A read token stands for the
// owner of a response that was created without credentials. The caller closes the reader.
func (s *Service) open(ctx context.Context, caller access.Caller, id, token string) (replay.Reader, *archive.Response, error) {
	of, ok := strings.CutPrefix(id, responses.IDPrefix)
	if !ok || !stream.ValidID(of) {
		return nil, nil, replay.ErrUnknown
	}
	in, err := s.Replay.Open(ctx, of)
	if err != nil {
		return nil, nil, err
	}
	if in.Head().Memo == "" { // a stream of another API
		in.Close()
		return nil, nil, replay.ErrUnknown
	}
	if in.Head().Owner != "" {
		token = "" // the token is only for the events: a response contains parts of its request, and can be stopped and deleted
	}
	var loaded *archive.Response
	if err = caller.Read(in.Head(), token); err == nil {
		loaded, err = archive.Load(ctx, in)
	}
	if err != nil {
		in.Close()
		return nil, nil, err
	}
	return in, loaded, nil
}

// missing returns the error for a response that cannot be opened. It is the same for a response
// that is not kept and for a response of another owner.
func missing(id string, err error) error {
	if errors.Is(err, replay.ErrUnknown) || errors.Is(err, streamerr.NotFound) {
		return streamerr.New(streamerr.NotFound, "Response with id '%.128s' not found.", id)
	}
	return err
}

// retrieve handles GET /v1/responses/{id}: it answers with the current response or, with
// stream=true, with its events.
func (s *Service) retrieve(conn context.Context, q *request) error {
	streams, err := q.streams()
	if err != nil {
		return err
	}
	if !streams {
		q.show(q.loaded)
		return nil
	}
	from, err := q.from()
	if err != nil {
		return err
	}
	return s.Stream(conn, q.c, q.in, from)
}

// maxBody bounds the body of a GET, in bytes. A larger body is ignored.
const maxBody = 1 << 10

// streams reports whether the client asks for events. OpenAI's library for Go asks in the body of
// its GET.
func (q *request) streams() (bool, error) {
	word := q.c.Query("stream")
	if body := connection.BodyOf(q.c); word == "" && body.Length() > 0 && body.Length() <= maxBody {
		text, err := io.ReadAll(body)
		if err != nil {
			return false, streamerr.New(streamerr.Invalid, "the body could not be read: %v", err)
		}
		var fields struct {
			Stream json.RawMessage `json:"stream"`
		}
		_ = json.Unmarshal(text, &fields) // a GET needs no body
		word = string(fields.Stream)
	}
	switch word {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, streamerr.InvalidParam("stream", "stream is %.64q; it must be true or false", word)
	}
}

// from returns the number of the first event that the client wants.
func (q *request) from() (int64, error) {
	const name = "starting_after"
	text := q.c.Query(name)
	if text == "" {
		return 0, nil
	}
	after, err := strconv.ParseInt(text, 10, 64)
	switch last := q.loaded.Next() - 1; {
	case err != nil || after < 0:
		return 0, streamerr.InvalidParam(name, "%s is %.64q; it must be the sequence_number of an event", name, text).WithCode(streamerr.CodeInvalidType)
	case q.loaded.Lost(after):
		return 0, exchange.WithStatus(http.StatusConflict, archive.LostEvent(after))
	case q.loaded.Over && after > last:
		return 0, streamerr.InvalidParam(name, "%s is %d; the last event of the response is %d", name, after, last)
	}
	return after + 1, nil
}

// Stream answers with the events of a response whose number is at least from.
func (s *Service) Stream(conn context.Context, c *app.RequestContext, in replay.Reader, from int64) error {
	response, err := archive.New(in.Head(), from)
	if err != nil {
		return err
	}
	s.Readers.Translate(conn, c, in, response.Play)
	return nil
}

// Answer answers the request that began a response: with the events, or with the response as it is
// now.
func (s *Service) Answer(conn context.Context, c *app.RequestContext, h replay.Head, streams bool) error {
	in, err := s.Replay.Open(conn, h.ID)
	if err != nil {
		return err
	}
	defer in.Close()
	if streams {
		return s.Stream(conn, c, in, 0)
	}
	loaded, err := archive.Load(conn, in)
	if err == nil {
		exchange.JSON(c, loaded.AppendResponse(nil))
	}
	return err
}

// show answers with a response object.
func (q *request) show(r *archive.Response) { exchange.JSON(q.c, r.AppendResponse(nil)) }

// cancel handles POST /v1/responses/{id}/cancel: it stops a background response, and answers with
// the ended response. A response that has ended already stays as it is.
func (s *Service) cancel(conn context.Context, q *request) error {
	if !q.loaded.Memo.Background {
		return streamerr.New(streamerr.Invalid, "Cannot cancel a synchronous response.")
	}
	ended, err := s.ended(conn, q)
	if err == nil {
		q.show(ended)
	}
	return err
}

// ended returns the response of q with its ending, and stops the response if it is still running.
func (s *Service) ended(ctx context.Context, q *request) (*archive.Response, error) {
	if q.loaded.Over {
		return q.loaded, nil
	}
	stopped := s.Stop(ctx, q.caller, q.in.Head().ID) // an error may mean that the response has just ended
	r, err := await(ctx, q.in, stopTimeout)
	switch {
	case err != nil:
		return nil, missing(q.id(), err)
	case r.Over:
		return r, nil
	case stopped != nil:
		return nil, stopped
	default:
		return nil, &streamerr.Error{Reason: streamerr.Unavailable, Message: "the response has not ended yet; try again", RetryAfter: time.Second}
	}
}

// await waits for the ending of a response, at most for within, and returns the current response.
func await(ctx context.Context, in replay.Reader, within time.Duration) (*archive.Response, error) {
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if _, err := follow.Each(waiting, in, 0, func(replay.Event) error { return nil }); err != nil {
		return nil, err
	}
	return archive.Load(ctx, in)
}

// remove handles DELETE /v1/responses/{id}: it stops the response if it is running, and deletes it.
func (s *Service) remove(conn context.Context, q *request) error {
	if _, err := s.ended(conn, q); err != nil {
		return err
	}
	h := q.in.Head()
	erased, err := s.Replay.Erase(conn, h.ID, h.Epoch)
	switch {
	case err != nil:
		return err
	case !erased:
		return &streamerr.Error{Reason: streamerr.Unavailable, Message: "the response cannot be deleted yet; try again", RetryAfter: time.Second}
	}
	exchange.JSON(q.c, append(jsontext.String([]byte(`{"id":`), q.id()), `,"object":"response","deleted":true}`...))
	return nil
}

// A Memory has answers that are not stored: those of one connection.
type Memory interface {
	// Earlier returns the conversation up to the response with an id. It calls stored for a response
	// that it does not have.
	Earlier(id string, stored func() ([]json.RawMessage, error)) ([]json.RawMessage, error)
	// Item returns the item with an id, or nil.
	Item(id string) json.RawMessage
	// Resolved takes the items that the references of the current request stand for.
	Resolved(found map[string]json.RawMessage)
}

// Continue adds to a request the conversation that it continues, and the items that it names. complete
// reports that all items were found. memory, which may be nil, is the first place to look.
func (s *Service) Continue(ctx context.Context, caller access.Caller, in *call.Call, memory Memory) (complete bool, err error) {
	var conversation []json.RawMessage
	stored := func() ([]json.RawMessage, error) { return s.stored(ctx, caller, in.Earlier) }
	switch {
	case in.Earlier == "":
	case memory == nil:
		conversation, err = stored()
	default:
		conversation, err = memory.Earlier(in.Earlier, stored)
	}
	if err != nil {
		return false, err
	}
	found, err := s.items(ctx, caller, in.References, memory)
	if err != nil {
		return false, err
	}
	size := int64(0) // of what the request becomes
	for _, id := range in.References {
		size += int64(len(found[id]))
	}
	if size > s.Desk.MaxBody {
		return false, streamerr.InvalidParam("input", "the items that input refers to have %d bytes; at most %d are allowed", size, s.Desk.MaxBody)
	}
	if memory != nil {
		memory.Resolved(found)
	}
	if in.Images, err = in.Continue(conversation, found); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(in.References, func(id string) bool { return found[id] == nil }), nil
}

// stored returns the conversation up to a stored response.
func (s *Service) stored(ctx context.Context, caller access.Caller, id string) ([]json.RawMessage, error) {
	const field = "previous_response_id"
	in, r, err := s.ending(ctx, caller, id)
	switch {
	case err == nil:
		in.Close()
	case errors.Is(missing(id, err), streamerr.NotFound):
		return nil, streamerr.InvalidParam(field, "Previous response with id '%.128s' not found.", id).WithCode(streamerr.CodePreviousNotFound)
	default:
		return nil, err
	}
	if !r.Over {
		return nil, streamerr.InvalidParam(field, "the response '%s' has not ended yet", id)
	}
	return r.Conversation()
}

// ending is open for a response that ends soon: the client of the response may have the ending before
// the log has it.
func (s *Service) ending(ctx context.Context, caller access.Caller, id string) (replay.Reader, *archive.Response, error) {
	in, r, err := s.open(ctx, caller, id, "")
	if err != nil || r.Over {
		return in, r, err
	}
	if r, err = await(ctx, in, endingTimeout); err != nil {
		in.Close()
		return nil, nil, err
	}
	return in, r, nil
}

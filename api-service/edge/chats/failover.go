package chats

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// maxMoves bounds the moves of a stream to another chat-service.
	maxMoves = 3
	// moveWithin bounds how long a stream waits for a chat-service that can resume it. A
	// chat-service may be about to come back, and a worker may hold the stream until the worker has
	// noticed the loss of the previous chat-service.
	moveWithin = 20 * time.Second
	// firstPause is the first pause after all chat-services were tried. Pauses double up to
	// lastPause.
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
	// maxChoices bounds the choices that a failover tracks. Chat-services refuse requests with more
	// than 64.
	maxChoices = 64
)

// A failover tracks one stream as it moves between chat-services. One goroutine at a time uses it.
type failover struct {
	stream.Relay[*chatv1.GenerateResponse]

	ctx      context.Context //nolint:containedctx // of the stream
	row      stream.Row
	fleet    *Fleet
	original *chatv1.ChatRequest
	renames  int  // how often the stream has got another id
	moves    bool // another chat-service can resume the stream
	tellsIDs bool // the chat-service reports the ids of delivered tokens

	failed    error          // why the current chat-service lost the stream, or nil
	ending    error          // the ending if no chat-service resumes the stream
	tried     []*peer        // since the last pause
	begun     bool           // Started was delivered
	name      string         // of the hop that has answered last
	delivered []progress     // the delivered part of each choice
	tokens    map[uint32]int // of a gathered answer: delivered and not discarded tokens, by choice; otherwise nil

	// State of the current move.
	moving bool
	from   string // the hop that had the stream before
	until  time.Time
	pause  time.Duration
	moved  int  // number of moves made
	heir   bool // the move is a takeover of another edge's stream

	remainders []*chatv1.GenerateResponse // not delivered yet; at most one per choice
}

func newFailover(ctx context.Context, f *Fleet, req *chatv1.ChatRequest, to reader) *failover {
	c := &failover{
		Relay: stream.RelayTo(to), ctx: ctx, fleet: f, original: req, ending: errNobody, moves: f.Resumes(), tellsIDs: f.Resumes() || req.GetTellIds(),
		delivered: make([]progress, min(maxChoices, max(1, int(req.GetN()))*max(1, len(req.GetPrompts())))),
	}
	if req.GetGathered() {
		c.tokens = map[uint32]int{}
	}
	return c
}

// start starts the stream on one chat-service after another.
func (c *failover) start() { c.row.Then(c.ask) }

// ask starts the stream on the next chat-service, or ends it if there is none.
func (c *failover) ask() {
	p := c.next(c.ctx)
	if p == nil {
		c.finish()
		return
	}
	c.failed = nil
	part := &part{c, p}
	p.engine(prefetch.With(c.ctx, prefetch.Of(c), prefetch.Of(part)), c.request(), part)
}

// A part is the Reader of the stream on one chat-service, which choose has counted.
type part struct {
	*failover

	peer *peer
}

// Item implements stream.Reader.
func (p *part) Item(on *stream.Loop, out *chatv1.GenerateResponse) (more bool) {
	return p.deliver(on, p.peer, out)
}

// End implements stream.Reader: the stream ends, or goes on on another chat-service.
func (p *part) End(err error) {
	c := p.failover
	switch {
	case stream.FailureOf(err) != nil || c.Left():
	case c.failed == nil && err != nil:
		c.failed = err
		p.peer.note(c.ctx, err)
	}
	p.peer.done()
	if stream.FailureOf(err) == nil && !c.Left() && c.lost(c.ctx, p.peer) {
		c.row.Then(c.ask)
		return
	}
	c.End(err)
}

// request returns the request for the next chat-service.
func (c *failover) request() *chatv1.ChatRequest {
	if !c.tellsIDs {
		return c.original
	}
	req := &chatv1.ChatRequest{}
	c.original.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		req.ProtoReflect().Set(field, value) // shared with the original, and only read
		return true
	})
	req.TellIds = true
	switch {
	case !c.begun:
	case len(c.delivered) == 1:
		req.Answered = &chatv1.TokenIDs{Ids: c.delivered[0].ids}
	default:
		req.AnsweredChoices = make([]*chatv1.AnsweredChoice, len(c.delivered))
		for i, t := range c.delivered {
			req.AnsweredChoices[i] = &chatv1.AnsweredChoice{Ids: t.ids, End: t.end}
		}
	}
	return req
}

// next returns the chat-service that answers or resumes the stream next, or nil if there is none.
func (c *failover) next(ctx context.Context) *peer {
	if stream.Cause(ctx) != nil {
		return nil
	}
	if !c.begun {
		if len(c.tried) == maxTries || len(c.tried) > 0 && !elsewhere(c.ending) {
			return nil
		}
		return c.fleet.choose(c.tried)
	}
	if !c.moving {
		return nil
	}
	for time.Now().Before(c.until) {
		if p := c.fleet.choose(c.tried); p != nil {
			return p
		}
		if !sleep(ctx, c.pause) {
			return nil
		}
		c.pause = min(2*c.pause, lastPause)
		c.tried = nil
	}
	return nil
}

// sleep waits for d. It reports false if the stream is stopped in the meantime.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stream.Stopping(ctx):
		return false
	}
}

// lost reports whether the stream has failed at p, and records it.
func (c *failover) lost(ctx context.Context, p *peer) bool {
	err := c.failed
	if err == nil {
		return false
	}
	e := streamerr.As(err)
	if !c.begun && c.tellsIDs && e.Param == "tell_ids" {
		// An older chat-service refuses tell_ids; retry the request without it.
		c.moves, c.tellsIDs = false, false
		if c.original.GetTellIds() {
			c.original = proto.CloneOf(c.original)
			c.original.TellIds = false
		}
		return true
	}
	if !c.begun && renamed(ctx, err, c.renames) {
		c.renames++
		return true
	}
	c.tried = append(c.tried, p)
	switch {
	case !c.begun:
		c.ending = err
	case !c.moving: // p had the stream
		c.ending = err
		if c.moves && c.moved < maxMoves && away(e) && stream.Cause(ctx) == nil {
			c.moving, c.from, c.tried = true, c.name, []*peer{p}
			c.until, c.pause = time.Now().Add(c.fleet.within), firstPause
		}
	case !elsewhere(err) && e.Param != "stream_id":
		// The error is the worker's, which still has the stream from the previous chat-service.
		c.moving = false
	}
	return true
}

// elsewhere reports whether another chat-service might accept a stream that has not begun.
func elsewhere(err error) bool {
	e := streamerr.As(err)
	return away(e) || e.Reason == streamerr.Unavailable || e.Reason == streamerr.Overloaded
}

// deliver passes on the part of an item that was not delivered before. It reports false if the
// reader has left the loop, or p does not know the request.
func (c *failover) deliver(on *stream.Loop, p *peer, out *chatv1.GenerateResponse) bool {
	switch m := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		c.name = cmp.Or(m.Started.GetChatService(), p.name)
		if field := capability.Unknown(capability.ChatFields(c.original), m.Started.GetKnownFields()); field != "" {
			c.failed = earlier(c.name, field)
			return false
		}
		switch {
		case !c.begun:
			c.begun = true
		case c.heir:
			c.takeOver()
			c.heir = false // later moves are moves between chat-services
		default:
			c.move(c.name)
			ledger.Of(c.ctx).AnsweredBy(m.Started.GetWorker())
			return true
		}
	case *chatv1.GenerateResponse_Restarted:
		choice := m.Restarted.GetChoice()
		c.takeBack(choice)
		*c.choice(choice) = progress{}
		c.remainders = slices.DeleteFunc(c.remainders, func(r *chatv1.GenerateResponse) bool { return r.GetDelta().GetChoice() == choice })
	case *chatv1.GenerateResponse_Delta:
		switch {
		case !c.tellsIDs:
		case m.Delta.GetRemainder():
			c.remainders = append(c.remainders, proto.CloneOf(out)) // out is valid until deliver returns
			return true
		case m.Delta.GetTokens() > 0 && len(m.Delta.GetIds()) == 0:
			c.moves, c.tellsIDs = false, false // the model's chat-services know no ids, so none can continue the answer
		case !c.choice(m.Delta.GetChoice()).add(m.Delta, c.original.GetTellIds()):
			return true
		}
		c.count(m.Delta.GetChoice(), m.Delta.GetTokens())
		c.moving = false // the move has succeeded
	case *chatv1.GenerateResponse_ChoiceEnd:
		t := c.choice(m.ChoiceEnd.GetChoice())
		if t.end != nil {
			return true // delivered before the move
		}
		t.end = m.ChoiceEnd
		c.count(m.ChoiceEnd.GetChoice(), m.ChoiceEnd.GetTokens())
	}
	return c.Pass(on, out)
}

// earlier returns the error of a chat-service whose release does not know a field of the request.
func earlier(chatService, field string) error {
	return streamerr.New(streamerr.Unavailable, "%s is of an earlier release, which does not know %s: upgrade chat-services before api-services", chatService, field)
}

// choice returns the delivered part of a choice. If number is out of range, it returns that of the
// last choice.
func (c *failover) choice(number uint32) *progress {
	return &c.delivered[min(int(number), len(c.delivered)-1)]
}

// count adds delivered tokens of a gathered answer.
func (c *failover) count(choice, tokens uint32) {
	if c.tokens != nil {
		c.tokens[choice] += int(tokens)
	}
}

// takeBack discards the delivered part of a choice.
func (c *failover) takeBack(choice uint32) {
	ledger.Of(c.ctx).TakenBack(c.tokens[choice])
	delete(c.tokens, choice)
}

// move records that another hop continues the stream.
func (c *failover) move(to string) {
	c.moved++
	delivered := 0
	for i := range c.delivered {
		c.delivered[i].again()
		delivered += len(c.delivered[i].ids)
	}
	c.remainders = nil
	why := streamerr.As(c.ending)
	c.fleet.log.LogAttrs(c.ctx, slog.LevelInfo, "stream moved",
		slog.String("stream", stream.ID(c.ctx)), slog.String("hop", c.fleet.self), slog.String("from", c.from), slog.String("to", to),
		slog.String("reason", why.Reason.String()), slog.Int("tokens", delivered), slog.String("message", why.Text()))
	ledger.Of(c.ctx).Moved(c.from, to, why.Reason, delivered)
}

// finish ends a stream that no chat-service resumes.
func (c *failover) finish() {
	if cause := stream.Cause(c.ctx); cause != nil {
		c.ending = cause
	}
	c.Close(c.ending, func(err error) error {
		// The failed chat-service may have been repeating parts that were delivered before.
		for _, r := range c.remainders {
			if c.choice(r.GetDelta().GetChoice()).add(r.GetDelta(), c.original.GetTellIds()) && !c.Pass(nil, r) {
				break
			}
		}
		return err
	})
}

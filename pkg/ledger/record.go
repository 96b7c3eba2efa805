package ledger

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/tally"
)

// A Record is one hop's record of one stream. A nil Record accepts all calls and stores nothing.
// All methods are safe for concurrent use. The stream's tally counts and times its messages; the
// record, the metrics and the trace read the tally. A Record forwards all other events to the
// metrics and the trace, so that the three agree.
type Record struct {
	// Static.
	hop, peer string
	ledger    *Ledger
	tally     *tally.Tally
	seen      *metrics.Stream    // may be nil
	trace     *streamtrace.Trace // may be nil
	parent    streamtrace.Parent // the caller's place in the trace

	mu             sync.Mutex // guards the following fields
	id             string     // changed while the ledger is locked, too
	model          string
	leave          string
	ignored        []string
	unread         []string
	owner          *string // nil while unknown
	prompt         uint32
	estimated      bool    // the tokens of the current turn are estimates, until the server's usage arrives
	turnsEstimated bool    // the tokens of a complete turn are estimates
	cached         *uint32 // cached tokens of the prompt; nil until an answer is complete
	turnsPrompt    uint32  // prompt tokens of the complete turns of a conversation
	sentPrompt     uint32  // tokens of the prompts with which workers were called, in the current turn
	sendsPrompts   bool    // SendsPrompt was called
	admitted       bool    // the request, or the current turn, was admitted
	stopHeard      time.Time
	confirmed      time.Time
	ended          time.Time
	reason         streamerr.Reason
	path           streamerr.Path
	message        string
	moves          []*streamv1.Move     // few: the code that moves streams bounds their number
	workers        []string             // that have answered, as far as this hop knows
	handovers      []*streamv1.Handover // at most one per worker of the stream
	calls          int                  // open calls to the hop below
	oneConfirmed   bool                 // a callee has ended its call as it was asked to
	oneUnconfirmed bool                 // a call is over, and it is unknown whether its callee has stopped
	parts          int                  // number of streams on the hop below; 0 means one, with the same id
	delivery       *streamv1.Delivery
	account        *account        // nil if no usage records are written
	extent         streamv1.Extent // of the answer, when the client left
}

// With returns a context that carries the record of its stream.
func With(ctx context.Context, r *Record) context.Context {
	return observer.With(ctx, r)
}

// Of returns the record of ctx's stream, or nil.
func Of(ctx context.Context) *Record {
	r, _ := observer.Unshielded(observer.Of(ctx)).(*Record)
	return r
}

// Parent returns the place in the trace for callees of ctx's stream. A hop without traces passes on
// the place that its caller sent.
func Parent(ctx context.Context) streamtrace.Parent {
	r := Of(ctx)
	if p := r.Events().Parent(); p.Valid() {
		return p
	}
	if r != nil && r.parent.Valid() {
		return r.parent
	}
	return streamtrace.ParentOf(ctx)
}

// Events returns the trace of the stream, or nil.
func (r *Record) Events() *streamtrace.Trace {
	if r == nil {
		return nil
	}
	return r.trace
}

// Touched implements prefetch.Toucher.
func (r *Record) Touched(to *prefetch.List) {
	if r == nil {
		return
	}
	r.tally.Touched(to)
	to.Add(prefetch.Of(&r.tally))
}

// Read records what a message about the beginning or the end of a stream or a turn says about
// language models: the model, the tokens of the prompt and the usage. It ignores other messages.
func (r *Record) Read(msg any) {
	if admission, ok := msg.(interface{ GetStarted() *llmv1.Started }); ok && admission.GetStarted() != nil {
		r.Started(admission.GetStarted())
	}
	if turn, ok := msg.(interface{ GetTurnEnd() *chatv1.TurnEnd }); ok && turn.GetTurnEnd() != nil {
		r.turnUsed(turn.GetTurnEnd().GetUsage())
	}
	ending, ok := msg.(interface{ GetEnd() *llmv1.End })
	if !ok {
		return
	}
	usage := ending.GetEnd().GetUsage()
	if answer, ok := msg.(interface{ GetModel() string }); ok { // a unary answer names its model itself
		r.Started(&llmv1.Started{Model: answer.GetModel(), PromptTokens: usage.GetPromptTokens()})
	}
	r.Used(usage)
}

// Started records the admission of a request, or of the next turn of a conversation. A second
// admission of the same turn replaces the first.
func (r *Record) Started(s *llmv1.Started) {
	if r == nil {
		return
	}
	r.seen.Started(s.GetModel())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.model, r.prompt, r.admitted = s.GetModel(), r.turnsPrompt+s.GetPromptTokens(), true
	r.estimated = s.GetEstimated()
	r.answeredBy(s.GetWorker())
}

// Used records the usage of a completed answer. The usage includes the prompts of all choices and
// turns, some of which may have started later than the stream.
func (r *Record) Used(u *llmv1.Usage) {
	if r == nil || u == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.estimated && !u.GetEstimated() {
		r.prompt = 0
	}
	r.estimated = u.GetEstimated()
	r.prompt = max(r.prompt, u.GetPromptTokens())
	if u.CachedTokens != nil {
		r.cachedInAll(*u.CachedTokens)
	}
}

// Leaves records the policy for the stream when its last reader leaves.
func (r *Record) Leaves(policy string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leave = policy
}

// Ignores records the fields of the request that were left out, as distinct paths.
func (r *Record) Ignores(fields []string) {
	if r == nil || len(fields) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ignored = fields
}

// Unread records a text of the answer that looks like a tool call and was not read as one. It counts
// the text as label, which is a word of an enum.
func (r *Record) Unread(text, label string) {
	if r == nil {
		return
	}
	r.ledger.Metrics.Unread(label)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unread) < maxUnread && !slices.Contains(r.unread, text) {
		r.unread = append(r.unread, text)
	}
}

// maxUnread bounds the texts of Unread in a record. Answers have few.
const maxUnread = 16

// Left records that the client has left, and how much of the answer it had. EXTENT_UNSPECIFIED is
// ignored: then the client has the whole answer. Only the first call has an effect, and only before
// the end of the stream.
func (r *Record) Left(has streamv1.Extent) {
	if r == nil {
		return
	}
	r.mu.Lock()
	first := has != streamv1.Extent_EXTENT_UNSPECIFIED && r.extent == streamv1.Extent_EXTENT_UNSPECIFIED && r.ended.IsZero()
	if first {
		r.extent = has
	}
	r.mu.Unlock()
	if first {
		r.seen.Left(Word(has))
	}
}

// Word returns the name of an extent in logs, labels and JSON, such as "tool_call", or "" for
// EXTENT_UNSPECIFIED.
func Word(e streamv1.Extent) string {
	if e == streamv1.Extent_EXTENT_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(e.String(), "EXTENT_"))
}

// In records an item with tokens from the hop below that is not a protobuf message.
func (r *Record) In(tokens int) {
	if r != nil {
		r.tally.Received(tokens, nil)
	}
}

// Unreceived records tokens that were generated below but never reached this hop, because this hop
// had stopped listening, or because a hop between has wasted them. It may be called after Close,
// when a call that the stream has abandoned is over.
func (r *Record) Unreceived(tokens int) {
	if r != nil && tokens > 0 && r.tally.Unreceived(tokens) {
		r.seen.Late(tokens)
	}
}

// Generated returns the number of tokens generated for the stream, as far as this hop knows.
func (r *Record) Generated() int {
	if r == nil {
		return 0
	}
	figures := r.tally.Snapshot()
	return int(figures.Received.Tokens)
}

// TakenBack records that delivered tokens became void because the answer was restarted. They count
// as wasted.
func (r *Record) TakenBack(tokens int) {
	if r != nil {
		r.tally.TakenBack(tokens)
	}
}

// OutBytes records bytes that were written to the caller, for the message of the next Sent.
func (r *Record) OutBytes(n int) {
	if r != nil {
		r.tally.Wrote(n)
	}
}

// Moved records that another hop below continues the stream, and why the previous hop does not.
// tokens is the number of tokens delivered before the move.
func (r *Record) Moved(from, to string, reason streamerr.Reason, tokens int) {
	if r == nil {
		return
	}
	now := time.Now()
	r.trace.NoteAt(now, streamtrace.Move, streamtrace.Down, "", reason, streamerr.NewPath(from, to))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moves = append(r.moves, &streamv1.Move{From: from, To: to, Reason: reason.Proto(), At: timestamppb.New(now), Tokens: uint32(tokens)})
}

// HandedOver records that the hop to got the prompt as read by from, or, if reason is not COMPLETED,
// why it did not. from is empty if no worker could be asked, and to is empty if the stream was stopped
// after from had read the prompt and before another worker was to answer.
func (r *Record) HandedOver(from, to string, reason streamerr.Reason, took time.Duration) {
	if r == nil {
		return
	}
	now := time.Now()
	r.trace.NoteAt(now, streamtrace.Handover, streamtrace.Down, "", reason, streamerr.NewPath(from, to))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handovers = append(r.handovers, &streamv1.Handover{From: from, To: to, Reason: reason.Proto(), At: timestamppb.New(now), Took: durationpb.New(took)})
}

// Split records that the stream is several streams on the hop below.
func (r *Record) Split(parts int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts = parts
}

// Stopping records that the stream must stop, and why. Only the first call has an effect.
func (r *Record) Stopping(cause *streamerr.Error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopHeard.IsZero() && r.ended.IsZero() {
		r.stopHeard = time.Now()
		r.trace.Stopping(r.stopHeard, cause)
		r.reason, r.path, r.message = cause.Reason, cause.Path.Append(r.hop), cause.Text()
		r.stoppedInCall()
	}
}

// Confirmed records that the hop below has stopped after it was asked to. Only the first call has
// an effect.
func (r *Record) Confirmed() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopHeard.IsZero() && r.confirmed.IsZero() {
		r.confirmed = time.Now()
		r.seen.Stopped(r.confirmed.Sub(r.stopHeard), r.reason)
	}
}

// End records the ending. Only the first call has an effect.
func (r *Record) End(reason streamerr.Reason, path streamerr.Path, message string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	first := r.ended.IsZero()
	if first {
		r.ended = time.Now()
		r.reason, r.path, r.message = reason, path, message
		r.ledger.close(r) // locked, so that a stream which is not live is among the ended ones
	}
	ending := metrics.Ending{At: r.ended, Reason: reason, Origin: path.Origin(), Prompt: r.prompt}
	r.mu.Unlock()
	if first {
		r.seen.End(ending)
	}
}

// Reason returns why the stream has ended, or is being stopped.
func (r *Record) Reason() streamerr.Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reason
}

func (r *Record) done() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.ended.IsZero()
}

// protoWithEvents returns the current record, with events.
func (r *Record) protoWithEvents() *streamv1.Record {
	p := r.Proto()
	r.trace.Tell(p)
	return p
}

// Proto returns the current record, without events.
func (r *Record) Proto() *streamv1.Record {
	figures, first := r.tally.Snapshot(), r.tally.FirstSent()
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &streamv1.Record{
		StreamId: r.id, Hop: r.hop, Peer: r.peer, Model: r.model, PromptTokens: r.prompt, CachedTokens: r.cached,
		State: streamv1.State_STATE_LIVE, Began: timestamppb.New(r.tally.Began()),
		Reason: r.reason.Proto(), Path: r.path, Message: r.message, Leave: r.leave, Ignored: r.ignored, Unread: slices.Clone(r.unread),
		TokensIn: uint32(figures.Received.Tokens), TokensOut: uint32(figures.Delivered()),
		Moves: slices.Clone(r.moves), Handovers: slices.Clone(r.handovers), Delivery: r.delivery, Owner: r.owner, Workers: r.allWorkers(),
		Extent: r.extent, ReceivedPace: pace(&figures.Received, r.tally.FirstReceived()), SentPace: pace(&figures.Sent, r.tally.FirstSent()),
	}
	if first > 0 {
		p.FirstToken = durationpb.New(first)
	}
	if mean, ok := figures.Sent.PerToken(); ok {
		p.PerToken, p.LongestGap = durationpb.New(mean), durationpb.New(figures.Sent.Longest)
	}
	if !r.stopHeard.IsZero() {
		p.State, p.StopHeard = streamv1.State_STATE_STOPPED, timestamppb.New(r.stopHeard)
	}
	if !r.confirmed.IsZero() {
		p.StopConfirmed = timestamppb.New(r.confirmed)
	}
	if !r.ended.IsZero() {
		p.State, p.Ended = streamv1.State_STATE_ENDED, timestamppb.New(r.ended)
	}
	return p
}

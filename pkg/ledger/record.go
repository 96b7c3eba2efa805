package ledger

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/tally"
)

// A Record is one hop's record of one stream. A nil Record accepts all calls and stores nothing. All methods are safe
// for concurrent use. The stream's tally counts and times its messages; the record, the metrics and the trace read it there, and
// a Record forwards everything else to metrics and trace, so that the three agree.
type Record struct {
	// Static.
	id, hop, peer string
	ledger        *Ledger
	tally         *tally.Tally
	seen          *metrics.Stream    // nil for none
	trace         *streamtrace.Trace // nil for none
	parent        streamtrace.Parent // the caller's, in the trace

	mu        sync.Mutex // guards the following fields
	model     string
	leave     string
	owner     *string // nil until it is known
	prompt    uint32
	cached    *uint32 // tokens of the prompt; nil until the answer is complete
	heard     time.Time
	confirmed time.Time
	ended     time.Time
	reason    streamerr.Reason
	path      streamerr.Path
	message   string
	moves     []*streamv1.Move     // few: whoever moves streams bounds how often
	handovers []*streamv1.Handover // at most one for each worker that had the stream
	calls     int                  // calls below that are open
	owned     bool                 // a call has ended, as its callee was asked to
	unsure    bool                 // a call is over, and nobody knows whether its callee has stopped
	parts     int                  // streams that it is on the hop below; 0 is one, of the same id
	delivery  *streamv1.Delivery
	account   *account        // nil if no usage records are written
	extent    streamv1.Extent // of the answer that the client had when it left
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

// Parent returns what a callee of ctx's stream is told of its trace. A hop that keeps no traces passes on what it was told.
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

// Read records what a message that admits a request or ends a stream says about language models: the model, the
// prompt's tokens and the usage. A message that says nothing about them is ignored.
func (r *Record) Read(msg any) {
	if admission, ok := msg.(interface{ GetStarted() *llmv1.Started }); ok && admission.GetStarted() != nil {
		r.Started(admission.GetStarted())
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

// Started notes what was admitted.
func (r *Record) Started(s *llmv1.Started) {
	if r == nil {
		return
	}
	r.seen.Started(s.GetModel())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.model, r.prompt = s.GetModel(), s.GetPromptTokens()
	if r.account != nil && s.GetWorker() != "" {
		r.account.worker = s.GetWorker()
	}
}

// Used records the usage of a completed answer. The usage includes the prompts of all choices and turns, some of
// which may have started later.
func (r *Record) Used(u *llmv1.Usage) {
	if r == nil || u == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prompt = max(r.prompt, u.GetPromptTokens())
	r.cached = new(min(u.GetCachedTokens(), r.prompt))
	r.seen.Cached(*r.cached)
}

// Leaves notes what is to become of the stream when nobody reads it any more.
func (r *Record) Leaves(policy string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leave = policy
}

// Left records that the client has left, and how much of the answer it had. EXTENT_UNSPECIFIED is ignored: the client lacks
// nothing. Only the first call counts, and none after the end of the stream.
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

// Word returns the word of an extent in logs, labels and JSON, such as "tool_call"; "" for EXTENT_UNSPECIFIED.
func Word(e streamv1.Extent) string {
	if e == streamv1.Extent_EXTENT_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(e.String(), "EXTENT_"))
}

// In notes an item with tokens that came from below, and is no protobuf message.
func (r *Record) In(tokens int) {
	if r != nil {
		r.tally.Received(tokens, nil)
	}
}

// Unreceived notes tokens that were generated below and never came to this hop: it had stopped listening, or a hop between has wasted
// them. It may be called after Close, when a call that the stream has left behind is over.
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

// TakenBack records that delivered tokens became void because the answer was restarted: they are wasted.
func (r *Record) TakenBack(tokens int) {
	if r != nil {
		r.tally.TakenBack(tokens)
	}
}

// OutBytes notes bytes that were written, of the message whose Sent is to come.
func (r *Record) OutBytes(n int) {
	if r != nil {
		r.tally.Wrote(n)
	}
}

// Moved notes that another hop below goes on with the stream, and why the one before does not. Tokens is how many had been
// delivered by then.
func (r *Record) Moved(from, to string, reason streamerr.Reason, tokens int) {
	if r == nil {
		return
	}
	now := time.Now()
	r.trace.NoteAt(now, streamtrace.Move, streamtrace.Down, "", reason, streamerr.NewPath(from, to))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.account != nil {
		r.account.worker = to
	}
	r.moves = append(r.moves, &streamv1.Move{From: from, To: to, Reason: reason.Proto(), At: timestamppb.New(now), Tokens: uint32(tokens)})
}

// HandedOver notes that what from had read of the prompt came to another hop below, or, where reason is not COMPLETED, why it did
// not. from is empty where nobody was to be asked.
func (r *Record) HandedOver(from, to string, reason streamerr.Reason, took time.Duration) {
	if r == nil {
		return
	}
	path := streamerr.NewPath(to)
	if from != "" {
		path = streamerr.NewPath(from, to)
	}
	now := time.Now()
	r.trace.NoteAt(now, streamtrace.Handover, streamtrace.Down, "", reason, path)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handovers = append(r.handovers, &streamv1.Handover{From: from, To: to, Reason: reason.Proto(), At: timestamppb.New(now), Took: durationpb.New(took)})
}

// Split notes that the stream is several on the hop below.
func (r *Record) Split(parts int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts = parts
}

// Stopping notes that the stream is to stop, and why. The first time counts.
func (r *Record) Stopping(cause *streamerr.Error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heard.IsZero() && r.ended.IsZero() {
		r.heard = time.Now()
		r.trace.Stopping(r.heard, cause)
		r.reason, r.path, r.message = cause.Reason, cause.Path.Append(r.hop), cause.Text()
	}
}

// Confirmed notes that what is below has stopped, if it was asked to. The first time counts.
func (r *Record) Confirmed() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.heard.IsZero() && r.confirmed.IsZero() {
		r.confirmed = time.Now()
		r.seen.Stopped(r.confirmed.Sub(r.heard), r.reason)
	}
}

// End records the ending. Only the first call counts.
func (r *Record) End(reason streamerr.Reason, path streamerr.Path, message string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	first := r.ended.IsZero()
	if first {
		r.ended = time.Now()
		r.reason, r.path, r.message = reason, path, message
	}
	ending := metrics.Ending{At: r.ended, Reason: reason, Origin: path.Origin(), Prompt: r.prompt}
	r.mu.Unlock()
	if first {
		r.seen.End(ending)
		r.ledger.close(r)
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

// Told returns the record as it stands, with its events.
func (r *Record) Told() *streamv1.Record {
	p := r.Proto()
	r.trace.Tell(p)
	return p
}

// Proto returns the record as it stands, without events.
func (r *Record) Proto() *streamv1.Record {
	figures := r.tally.Snapshot()
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &streamv1.Record{
		StreamId: r.id, Hop: r.hop, Peer: r.peer, Model: r.model, PromptTokens: r.prompt, CachedTokens: r.cached,
		State: streamv1.State_STATE_LIVE, Began: timestamppb.New(r.tally.Began()),
		Reason: r.reason.Proto(), Path: r.path, Message: r.message, Leave: r.leave,
		TokensIn: uint32(figures.Received.Tokens), TokensOut: uint32(figures.Delivered()),
		Moves: slices.Clone(r.moves), Handovers: slices.Clone(r.handovers), Delivery: r.delivery, Owner: r.owner,
		Extent: r.extent,
	}
	if !r.heard.IsZero() {
		p.State, p.StopHeard = streamv1.State_STATE_STOPPED, timestamppb.New(r.heard)
	}
	if !r.confirmed.IsZero() {
		p.StopConfirmed = timestamppb.New(r.confirmed)
	}
	if !r.ended.IsZero() {
		p.State, p.Ended = streamv1.State_STATE_ENDED, timestamppb.New(r.ended)
	}
	return p
}

package failover

import (
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Response says how a stream continues after its attempt has failed.
type Response int

// The responses. All but Tell continue with another worker. Before the next token, a worker that
// was tried may be tried once more, but only while the current worker is silent (not merely slow
// with its first token), only if the tried worker is in good standing, and only if it did not fail
// because of the request itself. After the first token, a worker that lost the stream is also asked
// again if no other worker is left, as soon as its probe has succeeded: neither a refusal by another
// worker nor the lack of one says that it cannot continue.
const (
	// Tell ends the stream with the failure.
	Tell Response = iota
	// Elsewhere asks another worker immediately.
	Elsewhere
	// Once does the same for the first such failure only. The request may be the cause, and would
	// otherwise bring down one worker after another.
	Once
	// Later asks another worker immediately. If there is none, it waits and asks the full workers
	// again.
	Later
)

// A Blame says how a failure affects the worker's standing.
type Blame int

// The blames.
const (
	// Nothing: the request is the cause, or the stream was ended on purpose.
	Nothing Blame = iota
	// Failed: the worker gets no streams until a health probe succeeds, and is ejected if it fails
	// repeatedly.
	Failed
	// Doubted: either the worker failed or the request is at fault, because no other worker has
	// answered it. Several doubts without a token in between count as one failure.
	Doubted
	// Full: the worker cools down for its Retry-After, or with a backoff.
	Full
)

// A Rule is a row of the policy table.
type Rule struct {
	Reason streamerr.Reason
	Before Response // before the stream's first token: a retry
	After  Response // after the first token: a move, if another worker may continue the answer
	Blame  Blame
}

// Rules is the policy table. A reason that is not listed ends the stream and blames no worker. If a
// worker refuses a retry or a move, for example with INVALID, the refusal never becomes the ending:
// the stream tries another worker or ends with the failure that began its search. A worker that holds
// the stream's id refuses for a while only: see holds.
var Rules = []Rule{
	//                        before     after      the worker
	{streamerr.PeerLost, Elsewhere, Elsewhere, Failed},  // its connection broke or failed; see maxDeaths
	{streamerr.PeerReset, Elsewhere, Elsewhere, Failed}, // it reset the call without an ending; see maxDeaths
	{streamerr.Draining, Elsewhere, Elsewhere, Failed},  // it shuts down
	{streamerr.Unavailable, Elsewhere, Elsewhere, Failed},
	{streamerr.Deadline, Elsewhere, Elsewhere, Failed}, // its timer or ours expired during a silence
	{streamerr.EngineFailed, Once, Once, Failed},
	{streamerr.Internal, Once, Once, Failed},       // it has a bug, or an upstream's engine died
	{streamerr.Overloaded, Elsewhere, Later, Full}, // it is full
}

// RuleOf returns the rule for a failure.
func RuleOf(reason streamerr.Reason) Rule {
	for _, r := range Rules {
		if r.Reason == reason {
			return r
		}
	}
	return Rule{Reason: reason}
}

// holds reports whether a worker refuses a stream because it has a live stream with the same id. That
// is usually the stream itself, whose previous chat-service was lost: the worker ends it as soon as it
// notices the loss. So another worker is asked, or the same one again after a pause, for Within at most.
func holds(why *streamerr.Error) bool {
	return why.Reason == streamerr.Invalid && why.Param == "stream_id"
}

// Limits bound the cost of failovers.
type Limits struct {
	// Moves is the maximum number of moves of a stream after its first token. A move counts once it
	// has delivered a token.
	Moves int
	// Silence is the maximum time without a message, before Started and between two tokens; 0 means
	// no limit.
	Silence time.Duration
	// FirstToken is the maximum time from Started to the first token, plus the same time again for
	// every TokensPerPatience tokens that the worker must read first; 0 means no limit. When it
	// passes, a worker with room takes over, once.
	FirstToken time.Duration
}

const (
	// TokensPerPatience is the number of unread tokens that adds FirstToken once more. Slow engines
	// read about 1,000 tokens per second.
	TokensPerPatience = 8192
	// Within bounds the search for a worker that continues an answer, counted from the failure. The
	// search waits only for full workers, for workers that hold the stream's id, for the stream's
	// turn to move, and for the probe of a worker that has failed the stream.
	Within = 20 * time.Second
	// maxDeaths is the number of workers that a stream may lose (PEER_LOST, PEER_RESET), or leave
	// because they hang, between Started and the first token. Then the stream ends, because the
	// request may be what kills the workers. A token resets the count.
	maxDeaths = 3
	// firstPause is the first pause before full workers are asked again. Each further pause is
	// twice as long, up to maxPause.
	firstPause = 500 * time.Millisecond
	maxPause   = 5 * time.Second
	// quiet is the minimum silence for which a worker's DEADLINE counts as silence. A DEADLINE
	// right after a token is a limit on the whole stream, which would apply on every other worker
	// as well.
	quiet = 250 * time.Millisecond
	// slackOfText bounds the number of ids that encode text, per token of the limit.
	slackOfText = 8
)

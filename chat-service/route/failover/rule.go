package failover

import (
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Response says how a stream continues after its attempt has failed.
type Response int

// The responses. Except for Tell, each continues with another worker. Until a token comes, a worker
// is tried at most once more, and only while the current worker is silent, not slow with its first
// token: it must be in good standing, and must not have failed over the request itself.
const (
	// Tell ends the stream with the failure.
	Tell Response = iota
	// Elsewhere asks another worker at once.
	Elsewhere
	// Once does the same, but only for the first such failure: the request may be its cause, and would take one worker
	// after the other with it.
	Once
	// Later asks another worker at once. If there is none, it waits and asks the full workers again.
	Later
)

// A Blame says how a failure affects the worker's standing.
type Blame int

// The blames.
const (
	// Nothing: the cause is the request, or a wish to end the stream.
	Nothing Blame = iota
	// Failed: the worker is probed, gets no streams until a probe succeeds, and is ejected if it fails repeatedly.
	Failed
	// Doubted: the worker failed, or the request is at fault, because no other worker has answered it. Several doubts
	// without a token between them count as a failure.
	Doubted
	// Full: the worker cools down for its Retry-After, or with a backoff.
	Full
)

// A Rule is a row of the policy table.
type Rule struct {
	Reason streamerr.Reason
	Before Response // before the stream's first token: a retry
	After  Response // after it: a move, where the answer may go on elsewhere
	Blame  Blame
}

// Rules is the policy table. A reason that is not listed ends the stream and blames no worker. A refusal of a retry
// or a move, such as INVALID, never becomes the ending: the stream tries another worker, or ends with the failure
// that began its search.
var Rules = []Rule{
	//                        before     after      the worker
	{streamerr.PeerLost, Elsewhere, Elsewhere, Failed},  // its connection broke, or cannot be made; see maxDeaths
	{streamerr.PeerReset, Elsewhere, Elsewhere, Failed}, // it reset the call without a word; see maxDeaths
	{streamerr.Draining, Elsewhere, Elsewhere, Failed},  // it shuts down
	{streamerr.Unavailable, Elsewhere, Elsewhere, Failed},
	{streamerr.Deadline, Elsewhere, Elsewhere, Failed}, // its own timer, or ours, ran out in silence
	{streamerr.EngineFailed, Once, Once, Failed},
	{streamerr.Internal, Once, Once, Failed},       // it has a bug, or a foreign server's engine died
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

// Limits bound the cost of failovers.
type Limits struct {
	// Moves is the maximum number of moves of a stream after its first token. A move counts once it has delivered a
	// token.
	Moves int
	// Silence is how long a worker may send nothing before Started, and between two tokens; 0 means no limit.
	Silence time.Duration
	// FirstToken is the maximum time from Started to the first token, plus as much for every TokensPerPatience tokens
	// that the worker has to read first; 0 means no limit. Then a worker that has room takes over, once.
	FirstToken time.Duration
}

const (
	// TokensPerPatience is how many unread tokens double the patience before the first token. Slow engines read some 1,000
	// tokens a second.
	TokensPerPatience = 8192
	// Within bounds the search for a worker that continues an answer, from the failure on. The search waits only for
	// full workers and for the stream's turn to move.
	Within = 20 * time.Second
	// maxDeaths is how many workers a stream may lose (PEER_LOST, PEER_RESET), or leave because they hang, after they have
	// admitted it and before they send a token. Then the stream ends: the request may be what kills the workers. A token resets the count.
	maxDeaths = 3
	// firstPause is the first pause before full workers are asked again; each further one is twice as long, up to maxPause.
	firstPause = 500 * time.Millisecond
	maxPause   = 5 * time.Second
	// quiet is the minimum silence that makes a worker's DEADLINE a sign of silence. A DEADLINE right after a token
	// is its operator's bound on whole streams, which holds on every other worker as well.
	quiet = 250 * time.Millisecond
	// slackOfText bounds the ids that text is spelled in, per token that was asked for.
	slackOfText = 8
)

package failover

import (
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Response is what becomes of a stream whose attempt has failed.
type Response int

// The responses. Each but Tell goes on with another worker, at most once with each until a token comes.
const (
	// Tell ends the stream with the failure.
	Tell Response = iota
	// Elsewhere asks another worker at once.
	Elsewhere
	// Once does the same, but only for the first such failure: the request may be its cause, and would take one worker
	// after the other with it.
	Once
	// Later asks another worker at once, and if there is none, waits and asks those again that were full.
	Later
)

// A Blame is what a failure says about the worker.
type Blame int

// The blames.
const (
	// Nothing: the request or somebody's will is the cause.
	Nothing Blame = iota
	// Failed: the worker is probed, gets no streams until a probe succeeds, and is ejected if it fails repeatedly.
	Failed
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

// Rules is the policy table. A reason that is not listed is told and blames nobody. A refusal of a retry or a move, such as
// INVALID, is never told: the stream has another worker asked, or ends with the failure that began its search.
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

// Limits bound what the rules may cost.
type Limits struct {
	// Moves is how often a stream may go on with another worker after its first token. A move counts once it has delivered a
	// token.
	Moves int
	// Silence is how long a worker may send nothing until it has said Started, and between two tokens; 0 is for ever.
	Silence time.Duration
	// FirstToken is how long a worker that has said Started may take for its first token, and as long again for every
	// TokensPerPatience tokens that it has to read before; 0 is for ever. After it, a worker that has room takes over, once.
	FirstToken time.Duration
}

const (
	// TokensPerPatience is how many unread tokens double the patience before the first token. Slow engines read some 1,000
	// tokens a second.
	TokensPerPatience = 8192
	// Within bounds the search for a worker that goes on with an answer, from the failure on. Only full workers, and the
	// turn to move, are waited for.
	Within = 20 * time.Second
	// maxDeaths is how many workers a stream may lose (PEER_LOST, PEER_RESET) after they have admitted it and before they send a
	// token. Then the stream ends: the request may be what kills the workers. A token resets the count.
	maxDeaths = 3
	// firstPause is the first pause before full workers are asked again; each further one is twice as long, up to maxPause.
	firstPause = 500 * time.Millisecond
	maxPause   = 5 * time.Second
	// quiet is how long a worker must have sent nothing for its DEADLINE to be one of silence. Else its operator bounds how
	// long whole streams may take, which no other worker changes.
	quiet = 250 * time.Millisecond
	// slackOfText bounds the ids that text is spelled in, per token that was asked for.
	slackOfText = 8
)

package e2e

import "net/http"

// The modes of a request.
const (
	modeStreamed = "streamed"
	modeWhole    = "whole"
)

// An outcome is the result that a client must see.
type outcome struct {
	full   bool   // the whole answer, once, and its usage
	finish string // finish reason of a completed answer that is a part of the reference; "" means an error
	reason string // reason of the only error
	code   string // the provider's code in the error; "" means the reason
	status int    // HTTP status, if nothing was sent before
	after  string // Retry-After; "" is not checked
	part   bool   // text comes before the error in a stream
	first  [2]int // calls of the first provider, at least and at most
	second [2]int // calls of the other provider
	moves  int    // in the story of a full answer; 0 and -1 are not checked
	wasted [2]int // tokens in the story of the stream, at least and at most; zeros are not checked
}

// A scenario is a fault at the providers with the expected outcome. expect is by variant and mode.
type scenario struct {
	name     string
	faults   func(c *providerCall)
	requests int // one after another; 0 means 1
	chat     []string
	alone    bool // there is only the first provider
	expect   func(variant, mode string) outcome
}

// Outcomes that several scenarios share.
var (
	alone   = outcome{full: true, first: [2]int{1, 1}}                       // the first provider answers
	retried = outcome{full: true, first: [2]int{1, 1}, second: [2]int{1, 1}} // the other provider answers
	always  = func(o outcome) func(_, _ string) outcome { return func(_, _ string) outcome { return o } }
)

// survives is the outcome of an answer that is lost in mid-stream: a resumable answer moves, a
// whole answer is restarted, and the client of a streamed answer that cannot be resumed reads one
// error.
func survives(reason string) func(variant, mode string) outcome {
	return func(variant, mode string) outcome {
		if variant == plain && mode == modeStreamed {
			return outcome{reason: reason, part: true, first: [2]int{1, 1}}
		}
		o := retried
		o.moves = 1
		return o
	}
}

// continues is the outcome of an answer that is lost once in mid-stream, while no other provider
// continues it: the first provider does, once its worker's probe has succeeded. others bounds the
// calls of the other provider, and whole is the outcome of a whole answer that is restarted.
func continues(others [2]int, whole outcome) func(variant, mode string) outcome {
	return func(variant, mode string) outcome {
		switch {
		case variant == resumable:
			return outcome{full: true, first: [2]int{2, 2}, second: others, moves: -1}
		case mode == modeStreamed:
			return outcome{reason: "peer_lost", part: true, first: [2]int{1, 1}}
		default:
			return whole
		}
	}
}

// refusedElsewhere is the outcome of an answer that is lost in mid-stream again and again, and that
// the other provider refuses: a loss is the ending.
func refusedElsewhere(variant, mode string) outcome {
	o := outcome{reason: "peer_lost", status: http.StatusBadGateway, part: mode == modeStreamed, first: [2]int{1, 12}, second: [2]int{1, 12}, moves: -1}
	if variant == plain && mode == modeStreamed {
		o.first, o.second = [2]int{1, 1}, [2]int{}
	}
	return o
}

// fullElsewhere is refusedElsewhere with a provider that is full: it is retried for
// failover.Within, after each loss.
func fullElsewhere(variant, mode string) outcome {
	o := refusedElsewhere(variant, mode)
	if o.second[1] > 0 {
		o.second[1] = 40
	}
	return o
}

// firstOnly is a fault of the first provider's first call.
func firstOnly(fault func(c *providerCall)) func(*providerCall) {
	return func(c *providerCall) {
		if c.first && c.before == 0 {
			fault(c)
			return
		}
		c.say()
	}
}

// refusing is a provider that answers with a status.
func refusing(status int, message, code, retryAfter string) func(*providerCall) {
	return func(c *providerCall) { c.refuse(status, message, code, retryAfter) }
}

// midway is a fault after the first 7 tokens.
func midway(fault func(c *providerCall)) func(*providerCall) {
	return firstOnly(func(c *providerCall) {
		c.tokens(7)
		fault(c)
	})
}

// cutThen cuts the first provider's answers, and makes the other provider refuse.
func cutThen(refusal func(*providerCall)) func(*providerCall) {
	return func(c *providerCall) {
		if !c.first {
			refusal(c)
			return
		}
		c.tokens(7)
		c.cut()
	}
}

// cutOnceThen cuts the first provider's first answer, and makes the other provider refuse.
func cutOnceThen(refusal func(*providerCall)) func(*providerCall) {
	first := midway((*providerCall).cut)
	return func(c *providerCall) {
		if !c.first {
			refusal(c)
			return
		}
		first(c)
	}
}

// scenarios are the faults that retries and failovers must handle.
var scenarios = []scenario{
	{name: "429 with Retry-After, once", faults: firstOnly(refusing(http.StatusTooManyRequests, "slow down", "rate_limit_exceeded", "1")), expect: always(retried)},
	{
		name: "429 of all providers", faults: refusing(http.StatusTooManyRequests, "slow down", "rate_limit_exceeded", "7"),
		expect: always(outcome{reason: "overloaded", code: "rate_limit_exceeded", status: http.StatusTooManyRequests, after: "7", first: [2]int{1, 1}, second: [2]int{1, 1}, moves: -1}),
	},
	{name: "500, once", faults: firstOnly(refusing(http.StatusInternalServerError, "boom", "", "")), expect: always(retried)},
	{
		name: "503 of all providers", faults: refusing(http.StatusServiceUnavailable, "loading", "", "3"),
		expect: always(outcome{reason: "unavailable", status: http.StatusServiceUnavailable, after: "3", first: [2]int{1, 1}, second: [2]int{1, 1}, moves: -1}),
	},
	{
		// A worker repeats a request unseen if the connection had carried one before: the server may have closed it.
		name: "connection reset before the headers", faults: firstOnly((*providerCall).reset),
		expect: always(outcome{full: true, first: [2]int{1, 2}, second: [2]int{0, 1}, moves: -1}),
	},
	{name: "silence: no headers", faults: firstOnly((*providerCall).hang), chat: impatient, expect: always(retried)},
	{name: "slow first token: headers, then nothing", faults: firstOnly(func(c *providerCall) { c.head(); c.hang() }), chat: impatient, expect: always(retried)},
	{name: "cut in mid-stream", faults: midway((*providerCall).cut), expect: survives("peer_lost")},
	{name: "stall in mid-stream", faults: midway((*providerCall).hang), chat: []string{"--migrate-after", "3s"}, expect: survives("deadline")},
	{name: "malformed chunk", faults: midway(func(c *providerCall) { c.event(`{"choices":[{`) }), expect: survives("engine_failed")},
	{name: "no terminator: finish and usage, and a clean end", faults: firstOnly(func(c *providerCall) { c.tokens(0); c.finish("stop") }), expect: always(alone)},
	{
		name: "context too long", faults: refusing(http.StatusBadRequest, "too long", "context_length_exceeded", ""),
		expect: always(outcome{reason: "invalid", code: "context_length_exceeded", status: http.StatusBadRequest, first: [2]int{1, 1}}),
	},
	{
		name: "content refused: status 400", faults: refusing(http.StatusBadRequest, "against our policy", "content_policy_violation", ""),
		expect: always(outcome{reason: "invalid", code: "content_policy_violation", status: http.StatusBadRequest, first: [2]int{1, 1}}),
	},
	{
		name: "content refused: finish_reason content_filter", faults: midway(func(c *providerCall) { c.finish("content_filter"); c.done() }),
		expect: always(outcome{finish: "content_filter", first: [2]int{1, 1}}),
	},
	{name: "cut in mid-stream, and the other provider answers 400", faults: cutThen(refusing(http.StatusBadRequest, "too long", "context_length_exceeded", "")), expect: refusedElsewhere},
	{name: "cut in mid-stream, and the other provider answers 429", faults: cutThen(refusing(http.StatusTooManyRequests, "slow down", "rate_limit_exceeded", "1")), expect: fullElsewhere},
	{name: "cut in mid-stream once, and the other provider answers 400", faults: cutOnceThen(refusing(http.StatusBadRequest, "too long", "context_length_exceeded", "")), expect: continues([2]int{1, 1}, refusedElsewhere(plain, modeWhole))},
	{name: "cut in mid-stream once, and the other provider answers 429", faults: cutOnceThen(refusing(http.StatusTooManyRequests, "slow down", "rate_limit_exceeded", "1")), expect: continues([2]int{1, 3}, outcome{full: true, first: [2]int{2, 2}, second: [2]int{1, 3}, moves: -1})},
	{name: "cut in mid-stream once, and there is no other provider", faults: midway((*providerCall).cut), alone: true, expect: continues([2]int{}, outcome{full: true, first: [2]int{2, 2}, moves: -1})},
	{
		name: "flapping provider", requests: 8, faults: func(c *providerCall) {
			if c.first && c.before%2 == 0 {
				c.refuse(http.StatusInternalServerError, "boom", "", "")
				return
			}
			c.say()
		},
		expect: always(outcome{full: true, first: [2]int{1, 8}, second: [2]int{1, 8}, moves: -1}),
	},
	{name: "accounting of an answer that was cut", faults: midway((*providerCall).cut), expect: func(variant, mode string) outcome {
		o := survives("peer_lost")(variant, mode)
		switch {
		case variant == resumable:
			o.wasted = [2]int{0, 1} // at most the token that ends an answer
		case mode == modeWhole:
			o.wasted = [2]int{7, 2 * len(referenceText)} // the tokens before the restart
		}
		return o
	}},
}

// impatient has additional flags of chat-services in scenarios with a silent worker. There are
// none: the default --first-token-move is short enough.
var impatient []string

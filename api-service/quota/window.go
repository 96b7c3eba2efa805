package quota

import "time"

// minute is the length of a window.
const minute = time.Minute

// A window counts the use of the current minute of the clock, and of the previous minute.
type window struct{ now, before float64 }

// sum returns the use of the last 60 s. at is the time since the current minute began.
func (w window) sum(at time.Duration) float64 {
	return w.now + w.before*(1-float64(at)/float64(minute))
}

// wait returns the time until sum is at most limit, if there is no further use. at is the time
// since the current minute began.
func (w window) wait(limit float64, at time.Duration) time.Duration {
	if w.sum(at) <= limit {
		return 0
	}
	if w.now <= limit { // the limit is met within this minute, as the share of the previous one shrinks
		return time.Duration((1-(limit-w.now)/w.before)*float64(minute)) - at
	}
	return minute - at + time.Duration((1-max(limit, 0)/w.now)*float64(minute))
}

// roll returns the window after a number of minutes.
func (w window) roll(minutes int64) window {
	switch {
	case minutes <= 0:
		return w
	case minutes == 1:
		return window{before: w.now}
	default:
		return window{}
	}
}

// A state is the use of an account.
type state struct {
	at               time.Duration // since the current minute began
	requests, tokens window
	streams          int // running streams, without the requested one
}

// full returns the limit that leaves no room for n further requests of a stream, or 0.
func (s state) full(l Limits, n int) limit {
	switch {
	case n > 0 && l.Requests > 0 && s.requests.sum(s.at)+float64(n) > float64(l.Requests):
		return requests
	case l.Tokens > 0 && s.tokens.sum(s.at) >= float64(l.Tokens):
		return tokens
	case l.Streams > 0 && s.streams >= l.Streams:
		return streams
	default:
		return 0
	}
}

package network

import (
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
)

// A Call is one call of a bidi method. Its Report is read after the schedule.
type Call struct {
	// Static.
	From, To, Method string
	Opened           time.Time
	Asked            time.Time // when the caller asked for it: before Opened if it waited for the dial
	conn             *conn

	mu           sync.Mutex // guards the following fields
	request      []byte
	stops        int
	served       bool
	returned     time.Time
	trailer      metadata.MD
	status       error
	said         time.Time
	last         []byte
	sentMsgs     int
	receivedMsgs int
	receivedAt   time.Time
	quiet        time.Duration
	known        time.Time
	resetAt      time.Time
	brokeAt      time.Time
	lostAt       time.Time
	delayed      bool
}

// A Report is the outcome of a call.
type Report struct {
	Request  []byte        // the first message, encoded; nil if there was none
	Stops    int           // number of messages that the caller sent after the first: Stops
	Served   bool          // the callee has received the call
	Returned time.Time     // when the callee sent the end; zero if it did not
	Trailer  metadata.MD   // sent with the end
	Err      error         // the status that was sent with the end; nil for OK
	Broke    time.Time     // when the connection broke or was closed; zero if the end reached the caller before
	Lost     time.Time     // when the callee noticed that the connection was lost; zero if it had sent the end
	Late     bool          // bytes had to wait because the path was stalled, before the caller knew the end
	Known    time.Time     // when the call ended for the caller; zero if it did not
	Reset    time.Time     // when the caller reset the call; zero if it did not
	Said     time.Time     // when the callee sent its last message; zero if it sent none
	Last     []byte        // the last message of the callee, encoded, if the caller has received it
	Messages int           // number of messages that the caller received
	Heard    time.Time     // when the caller received the last message so far; zero if there was none
	Quiet    time.Duration // the longest wait of the caller for a message
}

// dialed is how long after a dial a call may have waited for it.
const dialed = 100 * time.Millisecond

// newCall notes a call that is being opened on a connection.
func (n *Network) newCall(c *conn, method string) *Call {
	call := &Call{From: c.caller.host.name, To: c.callee.host.name, Method: method, Opened: time.Now(), conn: c}
	if call.Asked = call.Opened; call.Opened.Sub(c.made) <= dialed {
		call.Asked = c.asked
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, call)
	return call
}

// Caller returns the calling process.
func (c *Call) Caller() *Host { return c.conn.caller.host }

// Callee returns the called process.
func (c *Call) Callee() *Host { return c.conn.callee.host }

// note changes what is known of the call.
func (c *Call) note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// isOpen reports whether the caller does not know an end of the call yet.
func (c *Call) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.IsZero()
}

// Report returns the outcome of the call.
func (c *Call) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := Report{
		Request: c.request, Stops: c.stops, Served: c.served, Returned: c.returned, Trailer: c.trailer, Err: c.status, Broke: c.brokeAt, Lost: c.lostAt, Late: c.delayed,
		Known: c.known, Reset: c.resetAt, Said: c.said, Messages: c.receivedMsgs, Heard: c.receivedAt, Quiet: c.quiet,
	}
	if c.receivedMsgs == c.sentMsgs {
		r.Last = c.last
	}
	return r
}

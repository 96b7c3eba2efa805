package quota

import (
	"crypto/rand"
	"strconv"
	"sync"
	"time"
)

// A memory counts the use of this instance.
type memory struct {
	run string // identifies this process

	mu     sync.Mutex // guards the following fields
	last   uint64
	counts map[string]*count
	swept  int64 // the minute in which idle counts were dropped last
}

// A count is the use of one account.
type count struct {
	minute           int64 // of the windows
	requests, tokens window
	streams          map[string]bool
}

func newMemory() *memory { return &memory{run: rand.Text(), counts: map[string]*count{}} }

// name returns a unique name for a stream, over all instances.
func (m *memory) name() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	return m.run + ":" + strconv.FormatUint(m.last, 36)
}

// enter charges the tokens of v to the accounts. It counts the requests and the stream of v, unless
// an account has no room and check is true.
func (m *memory) enter(accounts []Account, v visit, now time.Duration, check bool) (states []state, refused refusal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now)
	states, refused = make([]state, len(accounts)), granted
	for i, a := range accounts {
		c := m.count(a.Name, now)
		c.tokens.now += float64(v.tokens)
		if states[i] = c.state(now); c.streams[v.stream] {
			states[i].streams-- // a stream leaves room for itself
		}
		if full := states[i].full(a.Limits, v.requests); check && full != 0 && refused.account < 0 {
			refused = refusal{i, full}
		}
	}
	if refused.account >= 0 {
		return states, refused
	}
	for i, a := range accounts {
		c := m.counts[a.Name]
		c.requests.now += float64(v.requests)
		c.streams[v.stream] = true
		states[i].requests = c.requests
	}
	return states, refused
}

// leave ends a stream of the accounts.
func (m *memory) leave(accounts []Account, stream string, tokens int, now time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range accounts {
		c := m.count(a.Name, now)
		c.tokens.now += float64(tokens)
		delete(c.streams, stream)
	}
}

// A visit is the admission of a stream, or a turn of a stream that was admitted.
type visit struct {
	stream   string
	requests int // to count
	tokens   int // to charge, whether or not the accounts have room
}

// A liveStream is a stream that counts for an account.
type liveStream struct{ account, stream string }

// liveStreams returns the streams of all accounts, grouped by account.
func (m *memory) liveStreams() (all []liveStream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, c := range m.counts {
		for stream := range c.streams {
			all = append(all, liveStream{name, stream})
		}
	}
	return all
}

// ended returns the streams of a batch that have ended meanwhile.
func (m *memory) ended(batch []liveStream) (all []liveStream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range batch {
		if c := m.counts[r.account]; c == nil || !c.streams[r.stream] {
			all = append(all, r)
		}
	}
	return all
}

// count returns the count of an account, in the minute of now. mu is held.
func (m *memory) count(name string, now time.Duration) *count {
	this := int64(now / minute)
	c := m.counts[name]
	if c == nil {
		c = &count{minute: this, streams: map[string]bool{}}
		m.counts[name] = c
	}
	c.requests, c.tokens = c.requests.roll(this-c.minute), c.tokens.roll(this-c.minute)
	c.minute = max(c.minute, this) // callers read the clock before they wait for mu
	return c
}

// sweep drops idle counts, once a minute. mu is held.
func (m *memory) sweep(now time.Duration) {
	this := int64(now / minute)
	if this == m.swept {
		return
	}
	m.swept = this
	for name, c := range m.counts {
		if this-c.minute > 1 && len(c.streams) == 0 {
			delete(m.counts, name)
		}
	}
}

func (c *count) state(now time.Duration) state {
	return state{at: now % minute, requests: c.requests, tokens: c.tokens, streams: len(c.streams)}
}

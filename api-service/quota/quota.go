// Package quota bounds what tenants and API keys may use: requests and tokens per minute, and streams at a time.
//
// A minute is a sliding window: it covers the current minute, and the part of the
// previous minute that began less than 60 s ago, whose use is assumed to be even. A request counts
// when it is admitted. Tokens count when their stream, or their turn of a conversation, has ended,
// because their number is not known before: an account over its limit gets no new streams and turns
// until the window has moved on.
//
// Instances of api-service share the counts through a Redis server. Each instance also counts for
// itself. While the server does not answer, each instance applies the limits to its own counts or
// refuses all requests, depending on the configuration. Streams that end meanwhile are charged when
// the server answers again.
package quota

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Limits bound one account. 0 means no limit.
type Limits struct {
	Requests int `yaml:"requests_per_minute"`
	Tokens   int `yaml:"tokens_per_minute"` // of prompts and answers
	Streams  int `yaml:"streams"`           // at a time
}

// Check refuses negative limits.
func (l Limits) Check() error {
	for name, n := range map[string]int{"requests_per_minute": l.Requests, "tokens_per_minute": l.Tokens, "streams": l.Streams} {
		if n < 0 {
			return fmt.Errorf("%s is %d; it must not be negative", name, n)
		}
	}
	return nil
}

// An Account is a tenant or an API key with its limits.
type Account struct {
	Name   string // unique among all accounts
	Whose  string // for error messages: "API key" or "tenant"
	Limits Limits
}

// A Config describes a Book.
type Config struct {
	Redis  string // URL of the server that shares the counts; "" counts in memory
	Closed bool   // refuse all requests of accounts with limits while the server does not answer
	Log    *slog.Logger

	timeout time.Duration // of an answer of the server; 0 means serverTimeout, and tests change it
}

// A Book counts what accounts use. All methods are safe for concurrent use.
type Book struct {
	config Config
	own    *memory
	shared *server // nil without Redis
	missed departures

	downUntil atomic.Int64    // until when, on the clock of process.Uptime, the server is not called; 0 while it answers
	closing   context.Context //nolint:containedctx // it ends with the Book, not with a call
	close     context.CancelFunc
	beats     sync.WaitGroup
	leaves    sync.WaitGroup // calls of the server that End does not wait for
}

// New returns a Book. The server need not be up. The caller closes the Book.
func New(c Config) (*Book, error) {
	c.timeout = cmp.Or(c.timeout, serverTimeout)
	b := &Book{config: c, own: newMemory()}
	b.closing, b.close = context.WithCancel(context.Background())
	if c.Redis == "" {
		return b, nil
	}
	shared, err := newServer(c.Redis, c.timeout, c.Log)
	if err != nil {
		return nil, err
	}
	b.shared = shared
	b.beats.Go(b.keepStreams)
	return b, nil
}

// Close frees the Book. All grants have ended.
func (b *Book) Close() error {
	b.close()
	b.beats.Wait()
	b.leaves.Wait()
	if b.shared == nil {
		return nil
	}
	if b.asks() {
		b.sendMissed()
	}
	return b.shared.close()
}

const (
	// serverTimeout bounds an answer of the server. downTime is how long the server is not called
	// after a failure: requests must not wait for a server that is down.
	serverTimeout = 250 * time.Millisecond
	downTime      = time.Second
	// streamLease is how long a stream counts after the last beat of its instance, and streamBeat
	// the time between beats.
	streamLease = 30 * time.Second
	streamBeat  = 10 * time.Second
	// maxBatch bounds the streams of one call, so that the call completes in time.
	maxBatch = 500
)

// A Grant is one admitted request. A nil Grant has no limits.
type Grant struct {
	book     *Book
	accounts []Account
	stream   string
	states   []state
	once     sync.Once

	mu      sync.Mutex // held while tokens are charged
	charged int        // tokens of the stream that are charged already
}

// Admit counts a request, and a running stream until End, or refuses the request with OVERLOADED.
// If no account has limits, the Grant is nil. The Grant of a refused request serves only for
// Headers.
func (b *Book) Admit(ctx context.Context, all []Account) (*Grant, error) {
	var accounts []Account
	for _, a := range all {
		if a.Limits != (Limits{}) {
			accounts = append(accounts, a)
		}
	}
	if len(accounts) == 0 {
		return nil, nil //nolint:nilnil // a nil Grant has no limits
	}
	g := &Grant{book: b, accounts: accounts, stream: b.own.name()}
	states, refused, err := b.enter(ctx, g, visit{stream: g.stream, requests: 1})
	if err != nil {
		return nil, err
	}
	g.states = states
	if refused.account >= 0 {
		return g, g.refusal(refused)
	}
	return g, nil
}

// Turn counts another request of a stream that was admitted, such as the next turn of a
// conversation, or refuses it with OVERLOADED.
func (g *Grant) Turn(ctx context.Context) error {
	if g == nil {
		return nil
	}
	states, refused, err := g.book.enter(ctx, g, visit{stream: g.stream, requests: 1})
	if err == nil && refused.account >= 0 {
		return (&Grant{accounts: g.accounts, states: states}).refusal(refused)
	}
	return err
}

// Charge charges the tokens that a stream has used so far, without those that were charged before.
// If the server does not answer, a later Charge or End charges them; if only its answer was lost, it
// has charged them twice.
func (g *Grant) Charge(ctx context.Context, total int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	b, more := g.book, total-g.charged
	if more <= 0 || b.shared != nil && !b.asks() {
		return
	}
	v := visit{stream: g.stream, tokens: more}
	if b.shared != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.config.timeout)
		defer cancel()
		_, _, err := b.shared.enter(ctx, g.accounts, v)
		if b.answered(err); err != nil {
			return
		}
	}
	b.own.enter(g.accounts, v, process.Uptime(), false)
	g.charged = total
}

// enter counts on the server and in this instance.
func (b *Book) enter(ctx context.Context, g *Grant, v visit) (states []state, refused refusal, err error) {
	if !b.asks() {
		if b.shared != nil && b.config.Closed {
			return nil, refused, errNoServer
		}
		states, refused = b.own.enter(g.accounts, v, process.Uptime(), true)
		return states, refused, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.config.timeout)
	defer cancel()
	states, refused, err = b.shared.enter(ctx, g.accounts, v)
	b.answered(err)
	switch {
	case err != nil && b.config.Closed:
		return nil, refused, errNoServer
	case err != nil:
		states, refused = b.own.enter(g.accounts, v, process.Uptime(), true)
	case refused.account < 0:
		b.own.enter(g.accounts, v, process.Uptime(), false)
	}
	return states, refused, nil
}

var errNoServer = &streamerr.Error{Reason: streamerr.Unavailable, Message: "the limits of this API key cannot be checked now, because redis does not answer", RetryAfter: downTime}

// asks reports whether the server should be called.
func (b *Book) asks() bool { return b.shared != nil && int64(process.Uptime()) >= b.downUntil.Load() }

// answered records whether the server has answered, and logs a change.
func (b *Book) answered(err error) {
	until := int64(0)
	if err != nil {
		until = int64(process.Uptime() + downTime)
	}
	switch was := b.downUntil.Swap(until); {
	case was == 0 && err != nil && b.config.Closed:
		b.config.Log.Warn("redis does not answer; requests with limits are refused", "err", err)
	case was == 0 && err != nil:
		b.config.Log.Warn("redis does not answer; each instance applies the limits to its own counts", "err", err)
	case was != 0 && err == nil:
		b.config.Log.Info("redis answers again; limits hold over all instances")
	}
	if err == nil && b.missed.any() {
		b.leaves.Go(b.sendMissed)
	}
}

// End ends the stream of a grant, and charges its tokens, without those that Charge has charged. Later calls do nothing. End does not wait
// for the server.
func (g *Grant) End(tokens int) {
	if g == nil {
		return
	}
	g.once.Do(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		b := g.book
		tokens = max(0, tokens-g.charged)
		b.own.leave(g.accounts, g.stream, tokens, process.Uptime())
		if b.shared != nil {
			b.leaves.Go(func() { b.depart(departure{accounts: g.accounts, stream: g.stream, tokens: tokens}) })
		}
	})
}

// keepStreams extends the leases of this instance's streams on the server, until the Book is
// closed.
func (b *Book) keepStreams() {
	tick := time.NewTicker(streamBeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.beat()
		case <-b.closing.Done():
			return
		}
	}
}

// beat extends the leases of all streams of this instance, and sends missed departures to the
// server.
func (b *Book) beat() {
	for batch := range slices.Chunk(b.own.liveStreams(), maxBatch) {
		ctx, cancel := context.WithTimeout(b.closing, b.config.timeout)
		err := b.shared.keep(ctx, batch)
		cancel()
		b.answered(err)
		for _, r := range b.own.ended(batch) { // their departure may have reached the server before this call, which has added them again
			b.depart(departure{accounts: []Account{{Name: r.account}}, stream: r.stream})
		}
		if err != nil {
			return
		}
	}
	if b.asks() {
		b.sendMissed()
	}
}

// A refusal names an account and the limit that it has reached.
type refusal struct {
	account int // -1 for none
	limit   limit
}

// A limit is a kind of limit of an account.
type limit int

const (
	requests limit = iota + 1
	tokens
	streams
)

var granted = refusal{account: -1}

func (g *Grant) refusal(r refusal) *streamerr.Error {
	a, s := g.accounts[r.account], g.states[r.account]
	e := &streamerr.Error{Reason: streamerr.Overloaded, Code: streamerr.CodeRateLimit}
	switch r.limit {
	case requests:
		e.Message = fmt.Sprintf("this %s may make %d requests per minute", a.Whose, a.Limits.Requests)
		e.RetryAfter = s.requests.wait(float64(a.Limits.Requests-1), s.at)
	case tokens:
		e.Message = fmt.Sprintf("this %s may use %d tokens per minute", a.Whose, a.Limits.Tokens)
		e.RetryAfter = s.tokens.wait(float64(a.Limits.Tokens)-1, s.at)
	case streams:
		e.Message = fmt.Sprintf("this %s may have %d streams at a time", a.Whose, a.Limits.Streams)
	}
	e.RetryAfter = max(time.Second, e.RetryAfter)
	return e
}

// Headers sets the x-ratelimit headers of the account with the least remaining quota, for each kind of limit.
func (g *Grant) Headers(set func(key, value string)) {
	if g == nil {
		return
	}
	for _, kind := range []struct {
		name string
		of   func(Limits, state) (limit int, used window)
	}{
		{"requests", func(l Limits, s state) (int, window) { return l.Requests, s.requests }},
		{"tokens", func(l Limits, s state) (int, window) { return l.Tokens, s.tokens }},
	} {
		least, limit, reset := math.MaxInt, 0, time.Duration(0)
		for i, a := range g.accounts {
			most, used := kind.of(a.Limits, g.states[i])
			if most == 0 {
				continue
			}
			if left := max(0, most-int(math.Ceil(used.sum(g.states[i].at)))); left < least {
				least, limit, reset = left, most, used.wait(0, g.states[i].at)
			}
		}
		if limit == 0 {
			continue
		}
		set("x-ratelimit-limit-"+kind.name, strconv.Itoa(limit))
		set("x-ratelimit-remaining-"+kind.name, strconv.Itoa(least))
		set("x-ratelimit-reset-"+kind.name, reset.Round(time.Millisecond).String())
	}
}

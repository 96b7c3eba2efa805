// Package redislog is a replay log that several instances share through a Redis server: every instance
// can read every stream, and a stream's events survive the instance that ran the stream.
//
// An event goes into the memory of the instance that runs the stream, and from there into a Redis
// Stream. Readers see the event once the server has it. While the server is down, readers on the
// same instance see events at once, and new streams are not Shared. When the server is back, the
// instance writes the events that the server missed or lost.
//
// # States
//
// A head on the server describes each stream. Its field "state" is beginning, live, ended or forgotten;
// a stream without a head is absent. Its field "run" is the instance that runs the stream. The head, the
// events, the request and the idempotency key expire together; the request is deleted when the stream ends.
// Each transition is one script (script.go). In the table, owner is the instance that runs the
// stream, and other is any other instance.
//
//	state      event                              next       effect
//	absent     owner: Begin                       beginning  expires after timeouts.begin
//	absent     owner: write                       beginning  the server has lost the stream: the owner restores the head, then writes all events
//	beginning  owner: write                       live       expires after liveTTL without another write
//	beginning  any: Begin with the same key       beginning  waits; after timeouts.server it fails with UNAVAILABLE and Retry-After
//	beginning  timeouts.begin passes              absent     the owner has died, or has given up waiting for its Begin; the key is free
//	live       owner: write                       live       the events that the server has are skipped, so a write can be repeated
//	live       any: Begin with the same key       live       returns the head of this stream
//	live       owner: write of the closing event  ended      expires after Limits.KeepsFor
//	live       liveTTL passes                     absent     the next write restores the stream
//	beginning  other: the owner is dead           ended      appends the closing event of Config.Lost; expires after Limits.KeepsFor
//	live       other: the owner is dead           live       the first other with room is the owner; a stream that cannot be continued, or that none has room for, ends as above
//	live       owner: HandOver                    live       has no owner; another instance takes it over
//	live       earlier owner: write, Forget       live       nothing is changed: the earlier owner is fenced, and its readers continue on the server
//	live       any: Stop                          live       the owner gets the cause with its next write, or when it takes the stream over
//	beginning  owner: Refuse                      ended      appends the refusal, and frees the key; expires after replay.RefusedTTL
//	live       owner: Refuse                      ended      as above; a stream that has ended keeps its ending
//	ended      any: Begin with the same key       ended      returns the head of this stream
//	ended      owner: write, owner has ended it   ended      nothing is left to write
//	ended      owner: write, other has ended it   ended      the owner is fenced
//	ended      Limits.KeepsFor passes             absent
//	ended      any: Erase                         forgotten  the events and the key are gone; expires after Limits.KeepsFor, until when the owner may have a copy
//	any        owner: Forget                      forgotten  the events and the key are gone; expires after forgottenTTL
//	ended      owner: its memory is full          forgotten  as after Forget: Config.Limits bound the server, too
//	forgotten  owner: write                       forgotten  the write is dropped
//	forgotten  any: Begin with the same id        forgotten  fails with ErrTaken
//	any        the server restarts without data   absent     the owner restores a stream that is not fully written
//
// A reader waits for an absent stream for timeouts.restore, because its owner may restore it, and then gets
// ErrUnknown. A reader of a forgotten stream gets ErrUnknown at once.
//
// # Leases
//
// An instance extends its lease on the server beatsPerLease times within Config.Lease. The server
// answers with the instances without a lease. An instance that has no lease in two consecutive beats
// is dead (coroner.go): each of the other instances takes over some of its streams. The scripts
// resolve races, and refuse the writes of an instance that was wrongly considered dead.
package redislog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/redisclient"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Timeouts and lifetimes of a log.
const (
	retryInterval = 500 * time.Millisecond // between two writes of one stream while the server is down
	beginInterval = 20 * time.Millisecond  // between two checks of a stream in state beginning
	heartbeat     = time.Second            // between two records that a stream is being read
	liveTTL       = time.Hour              // of a head in state live, since the last write
	forgottenTTL  = 6 * time.Second        // of a head in state forgotten
	seenTTL       = time.Hour              // of the record that a stream is being read
	closeTimeout  = 2 * time.Second        // for the remaining writes when the log is closed
)

// timeouts are the timeouts that tests change.
type timeouts struct {
	server  time.Duration // for one answer of the server; after it the server counts as down
	begin   time.Duration // TTL of a head in state beginning
	restore time.Duration // for an instance to rewrite events that the server has lost
	ahead   time.Duration // for an instance to write events that its readers have already seen
}

var defaultTimeouts = timeouts{server: time.Second, begin: 5 * time.Second, restore: 3 * time.Second, ahead: 7 * time.Second}

// Bounds of the replies that a log receives at a time, in bytes. The replies about streams have as much room
// as the streams (Limits.Bytes), and at least minReplies: a page of one stream, and its request, must fit.
const (
	minReplies = 64 << 20
	maxBeat    = 1 << 20 // of a beat, which names at most 64 instances
)

// A Log is a replay.Log on a Redis server.
type Log struct {
	config   Config
	db       *redis.Client
	leases   *redis.Client // has one connection, for the lease of this process
	claims   *redis.Client // has a connection for each batch of takeovers, so that takeovers do not wait behind the streams that run
	messages *redis.Client // only for pubsub
	pubsub   *redis.PubSub
	local    *replay.Memory
	run      string          // identifies this process uniquely
	closing  context.Context //nolint:containedctx // it ends with the log, not with a call
	close    context.CancelFunc
	shipped  sync.WaitGroup // the goroutines that write streams
	others   sync.WaitGroup // the goroutines that stop when closing is done

	downSince atomic.Int64 // on the clock of process.Uptime; 0 while the server answers

	evicted chan replay.Head // ended streams that were evicted here

	dead    chan []string // runs whose streams must be taken over; capacity 1
	retired atomic.Bool   // this process takes over no more streams
	taking  sync.RWMutex  // read-locked during a takeover

	subscribing sync.Mutex // held while a subscription changes, which depends on remote; taken before mu

	mu     sync.Mutex                 // guards the following fields, and those of all remoteStreams
	remote map[string][]*remoteStream // by id; one for each epoch that is being read
	unsure []claim                    // takeovers that this process may have won on the server, and has not loaded
}

// A Config describes the server and this instance.
type Config struct {
	URL    string // redis://user:password@host:port/database
	Name   string // of this instance; Head.Edge of the streams that it takes over
	Limits replay.Limits
	// Lease is the time after which other instances consider this instance dead if it does not
	// reach the server; 0 means DefaultLease. It should be the same on all instances.
	Lease time.Duration
	// Lost returns the closing event of a stream whose instance has died and that no instance
	// continues.
	Lost func(replay.Head) replay.Event
	// TakeOver continues a stream whose instance has died or has handed it over. The stream already
	// has its writer here. TakeOver must not wait. If it is nil, this instance takes over no
	// streams.
	TakeOver func(replay.Orphan)
	// Room reports whether this instance has room for another stream; nil means always. An instance
	// without room leaves the streams of dead instances to the others. If no instance takes them
	// over, they end.
	Room func() bool
	// Fenced is called when another instance has ended a stream of this instance or has taken it
	// over: the stream has no writer here any more. It may be nil.
	Fenced func(replay.Head)
	// Stopped is called when another instance asks for a stream of this instance to stop. It may be
	// called several times, and may be nil.
	Stopped func(h replay.Head, cause string)
	Log     *slog.Logger

	timeouts timeouts // the zero value means defaultTimeouts
}

// New returns a log on a server. The server need not be up.
func New(c Config) (*Log, error) {
	c.Limits = c.Limits.WithDefaults()
	if c.timeouts == (timeouts{}) {
		c.timeouts = defaultTimeouts
	}
	o, err := redisclient.Options(redisclient.Config{URL: c.URL, Timeout: c.timeouts.server, MaxBytes: max(minReplies, int64(c.Limits.Bytes)), Log: c.Log})
	if err != nil {
		return nil, err
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if err := CheckLease(c.Lease); err != nil {
		return nil, err
	}
	short, err := redisclient.Options(redisclient.Config{URL: c.URL, Timeout: c.Lease / 2, MaxBytes: maxBeat, Log: c.Log})
	if err != nil {
		return nil, err
	}
	subscribes, err := redisclient.Options(redisclient.Config{URL: c.URL, Timeout: c.timeouts.server, Messages: true, Log: c.Log})
	if err != nil {
		return nil, err
	}
	short.PoolSize = 1000 // the client pauses for a second after this many failed dials; it never has more than one connection
	few := *o
	few.PoolSize = batchesAtOnce
	l := &Log{config: c, db: redis.NewClient(o), claims: redis.NewClient(&few), leases: redis.NewClient(short), messages: redis.NewClient(subscribes), dead: make(chan []string, 1), local: replay.NewMemory(c.Limits), run: replay.NewEpoch(), remote: map[string][]*remoteStream{}, evicted: make(chan replay.Head, maxEvicted)}
	l.local.Evicted = l.evict
	l.closing, l.close = context.WithCancel(context.Background())
	_, _ = l.beatOnce() // before the first stream; if the server is down, a later beat creates the lease
	l.others.Go(l.keepLease)
	l.others.Go(l.buryAll)
	l.others.Go(l.forgetEvicted)
	l.pubsub = l.messages.Subscribe(l.closing)
	l.others.Go(l.listen)
	l.others.Go(func() {
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.showReaders()
			case <-l.closing.Done():
				return
			}
		}
	})
	return l, nil
}

// answered records whether the server has answered, and logs a change.
func (l *Log) answered(err error) {
	switch {
	case err == nil:
		if since := l.downSince.Swap(0); since != 0 {
			l.config.Log.Info("redis answers again", "after", process.Uptime()-time.Duration(since))
		}
	case l.closing.Err() == nil && !errors.Is(err, context.Canceled):
		if l.downSince.CompareAndSwap(0, int64(process.Uptime())) {
			l.config.Log.Warn("redis does not answer; streams that begin now cannot be resumed elsewhere", "err", err)
		}
	}
}

// errAnswer is the error of an answer that no script of ours and no command gives, or of what the server
// keeps in place of a stream.
var errAnswer = errors.New("replay: the answer of redis is not that of a log of streams")

// unavailable returns the error for callers when the server has failed with err. Callers are not told err,
// which has the server's address and text.
func unavailable(err error) *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Unavailable, Message: "the events of streams cannot be read now, because redis does not answer", RetryAfter: time.Second, Cause: err}
}

// Begin implements replay.Log. While the server is down, a stream without a Key begins on this
// instance only. A stream with a Key is refused, because it may have begun on another instance.
func (l *Log) Begin(ctx context.Context, h replay.Head) (replay.Head, error) {
	if known, ok := l.local.HeadOfKey(h.Key); ok {
		return known, nil
	}
	h.Shared = true
	begun, err := l.beginShared(ctx, h)
	switch {
	case errors.Is(err, errOrphan), errors.Is(err, replay.ErrTaken):
		return replay.Head{}, err
	case err != nil && h.Key != "":
		return replay.Head{}, unavailable(err)
	case err != nil:
		h.Shared, h.Form, h.Request = false, "", ""
		return headOf(l.local.Add(h))
	case begun.ID != h.ID:
		return begun, nil
	}
	h.Request = "" // only the server keeps the request: prompts are large
	w, err := l.local.Add(h)
	if err != nil {
		l.forget(ctx, h)
		return replay.Head{}, err
	}
	l.startShipping(w, 0)
	return h, nil
}

// startShipping starts to write the events of a stream to the server, which already has the events
// up to number written.
func (l *Log) startShipping(w *replay.Writer, written uint64) {
	outbox := w.Outbox()
	l.shipped.Go(func() { l.ship(outbox, written) })
}

func headOf(w *replay.Writer, err error) (replay.Head, error) {
	if err != nil {
		return replay.Head{}, err
	}
	return w.Head(), nil
}

// errOrphan refuses a key whose stream remains in state beginning.
var errOrphan = &streamerr.Error{Reason: streamerr.Unavailable, Message: "an earlier request with this Idempotency-Key has not begun its stream; try again", RetryAfter: time.Second}

// beginShared creates a head on the server and returns it, or returns the head of the stream with
// the same key. It fails with replay.ErrTaken if the id is taken. While a stream with the same key
// is in state beginning, beginShared tries again, for at most timeouts.server: either that stream
// becomes live, or it is an orphan, which will expire. It also tries again if the stream with the
// same key was forgotten before its head was read.
func (l *Log) beginShared(ctx context.Context, h replay.Head) (replay.Head, error) {
	late := time.NewTimer(l.config.timeouts.server)
	defer late.Stop()
	for {
		id, state, err := l.makeHead(ctx, h)
		switch {
		case err != nil:
			return replay.Head{}, err
		case id == "":
			return replay.Head{}, replay.ErrTaken
		case id == h.ID:
			return h, nil
		case state != stateBeginning:
			if known, err := l.head(ctx, id); !errors.Is(err, replay.ErrUnknown) {
				return known, err
			}
		}
		select {
		case <-time.After(beginInterval):
		case <-late.C:
			return replay.Head{}, errOrphan
		case <-ctx.Done():
			return replay.Head{}, context.Cause(ctx)
		}
	}
}

// makeHead creates a head on the server, unless its key or its id already has a stream. It returns
// the id and the state of the stream that has the key, and an empty id if another stream has the
// id.
func (l *Log) makeHead(ctx context.Context, h replay.Head, more ...any) (id, state string, err error) {
	age := max(0, time.Since(h.Began)).Milliseconds()
	args := append([]any{l.config.timeouts.begin.Milliseconds(), h.Key, h.ID, headKey(""), age, h.Request, h.Epoch, l.run}, fields(h)...)
	args = append(args, more...)
	made, err := beginScript.Run(ctx, l.db, keysOf(h, l.run), args...).StringSlice()
	l.answered(err)
	switch {
	case err != nil:
		return "", "", err
	case len(made) != 2 || made[0] != "" && !stream.ValidID(made[0]):
		return "", "", errAnswer
	}
	return made[0], made[1], nil
}

// Writer implements replay.Log.
func (l *Log) Writer(id, epoch string) (*replay.Writer, error) { return l.local.Writer(id, epoch) }

// Append implements replay.Log.
func (l *Log) Append(id, epoch string, events ...replay.Event) error {
	return l.local.Append(id, epoch, events...)
}

// Forget implements replay.Log.
func (l *Log) Forget(ctx context.Context, id, epoch string) {
	if h, ok := l.local.Drop(id, epoch); ok && h.Shared {
		l.forget(ctx, h)
	}
}

func (l *Log) forget(ctx context.Context, h replay.Head) {
	ctx = context.WithoutCancel(ctx) // the caller may have left
	l.answered(forgetScript.Run(ctx, l.db, keysOf(h, l.run), h.ID, h.Epoch, wakeName(h.ID), forgottenTTL.Milliseconds(), l.run).Err())
}

// Open implements replay.Log.
func (l *Log) Open(ctx context.Context, id string) (replay.Reader, error) {
	if own, err := l.local.Open(ctx, id); err == nil {
		if !l.erased(ctx, own.Head()) {
			return &localReader{Reader: own, log: l}, nil
		}
		own.Close()
		l.local.Drop(id, own.Head().Epoch)
	}
	return l.openRemote(ctx, id)
}

// openRemote returns a reader of the stream on the server.
func (l *Log) openRemote(ctx context.Context, id string) (replay.Reader, error) {
	h, err := l.head(ctx, id)
	if err != nil {
		return nil, err
	}
	return &remoteReader{log: l, head: h}, nil
}

// Seen implements replay.Log. While the server is down, a stream counts as seen at the time when
// the server went down.
func (l *Log) Seen(ctx context.Context, id string) (ago time.Duration, ok bool) {
	left, err := l.db.PTTL(ctx, seenKey(id)).Result()
	l.answered(err)
	if since := l.downSince.Load(); err != nil && since != 0 {
		return process.Uptime() - time.Duration(since), true
	}
	return seenTTL - min(left, seenTTL), left > 0
}

// Close implements replay.Log. It waits for the remaining writes, for at most closeTimeout.
func (l *Log) Close() error {
	timer := time.AfterFunc(closeTimeout, l.close)
	l.shipped.Wait()
	timer.Stop()
	l.close()
	l.leave()
	err := l.pubsub.Close()
	if l.downSince.Load() != 0 {
		err = nil // expected if the server is down
	}
	l.others.Wait()
	return errors.Join(err, l.local.Close(), l.db.Close(), l.leases.Close(), l.claims.Close(), l.messages.Close())
}

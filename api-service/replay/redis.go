package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// What a Redis does in time.
const (
	patience  = time.Second            // for one answer of the server; past it the server is down
	again     = 500 * time.Millisecond // until a stream tries a server again that is down
	lookAgain = 20 * time.Millisecond  // until a stream that begins elsewhere is looked at again
	beatEvery = time.Second            // between signs of life
	leaseTTL  = 3 * beatEvery          // of an instance's sign of life
	lostAfter = 2 * beatEvery          // an instance without a sign of life is lost: as long as a server that has restarted may not know it
	beginTTL  = 5 * patience           // of a stream that its instance has not made live
	liveTTL   = time.Hour              // of a stream that says nothing
	seenTTL   = time.Hour              // of who reads a stream elsewhere
	lastWords = 2 * time.Second        // for what has not been written when the process ends
)

// A Redis is a Log that several instances share: a stream can be read by each, and what has been read survives the instance
// that ran it.
//
// What a stream says goes into the memory of its instance, and from there into a Redis Stream; only then its readers see it.
// While the server is down they see it at once, streams that begin are not Shared, and what the server has missed, or
// forgotten, is written when it is back. Each instance gives a sign of life; a stream whose instance gives none any more gets its
// closing event from an instance that reads it.
type Redis struct {
	config  RedisConfig
	db      *redis.Client
	pubsub  *redis.PubSub
	local   *Memory
	run     string          // this process, among all there ever were
	closing context.Context //nolint:containedctx // it ends with the log, not with a call
	close   context.CancelFunc
	shipped sync.WaitGroup // ends with the streams that run here
	others  sync.WaitGroup // ends with closing

	downSince atomic.Int64 // unix nanoseconds; 0 while the server answers

	hearing sync.Mutex // held while the server is told what to wake readers for, which depends on followed; taken before mu

	mu       sync.Mutex // guards the following fields, and those of all followed
	followed map[string]*followed
}

// A RedisConfig says where the server is and who we are.
type RedisConfig struct {
	URL    string // redis://user:password@host:port/database
	Limits Limits
	// Lost returns the closing event of a stream whose instance has died.
	Lost func(Head) Event
	Log  *slog.Logger
}

// CheckURL reports what is wrong with the URL of a server.
func CheckURL(url string) error {
	_, err := redis.ParseURL(url)
	return err
}

// NewRedis returns a log on a server, which need not be up.
func NewRedis(c RedisConfig) (*Redis, error) {
	o, err := redis.ParseURL(c.URL)
	if err != nil {
		return nil, err
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patience, patience, patience, patience
	o.MaxRetries, o.DialerRetries = -1, 1 // streams do not wait; they go on without
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.DisableIdentity = true
	c.Limits = c.Limits.withDefaults()
	r := &Redis{config: c, db: redis.NewClient(o), local: NewMemory(c.Limits), run: NewEpoch(), followed: map[string]*followed{}}
	r.closing, r.close = context.WithCancel(context.Background())
	r.beat() // before the first stream
	r.pubsub = r.db.Subscribe(r.closing)
	r.others.Go(r.listen)
	r.others.Go(func() {
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.beat()
			case <-r.closing.Done():
				return
			}
		}
	})
	return r, nil
}

// LogTo sends what the library logs, in the whole process, to w, a line at a time.
func LogTo(w io.Writer) { redis.SetLogger(printer{w}) }

type printer struct{ w io.Writer }

// Printf is what the library calls.
func (p printer) Printf(_ context.Context, format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, format, args...) // a log that cannot be written to is seen elsewhere
}

// Names of keys. A channel is told that a stream has said more.
func headKey(id string) string   { return "whence:head:" + id }
func logKey(id string) string    { return "whence:log:" + id }
func seenKey(id string) string   { return "whence:seen:" + id }
func wakeName(id string) string  { return "whence:wake:" + id }
func leaseKey(run string) string { return "whence:lease:" + run }

func (h Head) idempotencyKey() string {
	if h.Key == "" {
		return headKey(h.ID)
	}
	return "whence:key:" + h.Key
}

// answered notes whether the server answers, and says so in the log when that changes.
func (r *Redis) answered(err error) {
	switch {
	case err == nil:
		if since := r.downSince.Swap(0); since != 0 {
			r.config.Log.Info("redis answers again", "after", time.Since(time.Unix(0, since)))
		}
	case r.closing.Err() == nil && !errors.Is(err, context.Canceled):
		if r.downSince.CompareAndSwap(0, time.Now().UnixNano()) {
			r.config.Log.Warn("redis does not answer; streams that begin now cannot be resumed elsewhere", "err", err)
		}
	}
}

func unavailable(err error) *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Unavailable, Message: "what streams have said cannot be reached now", RetryAfter: time.Second, Cause: err}
}

// Begin implements Log. While the server is down, a stream without a Key begins here alone; one with a Key might have begun
// elsewhere, so it is refused.
func (r *Redis) Begin(ctx context.Context, h Head) (Head, error) {
	if known, ok := r.local.withKey(h.Key); ok {
		return known, nil
	}
	h.Shared = true
	id, err := r.beginShared(ctx, h)
	switch {
	case errors.Is(err, errOrphan):
		return Head{}, err
	case err != nil && h.Key != "":
		return Head{}, unavailable(err)
	case err != nil:
		return r.beginHere(h)
	case id == "":
		return Head{}, ErrTaken
	case id != h.ID:
		known, _, err := r.head(ctx, id)
		return known, err
	}
	k, err := r.local.begin(h)
	if err != nil {
		r.forget(ctx, h)
		return Head{}, err
	}
	ready := r.local.hold(k)
	r.shipped.Go(func() { r.ship(k, ready) })
	return h, nil
}

// errOrphan refuses a key whose stream was begun by an instance and never made live.
var errOrphan = &streamerr.Error{Reason: streamerr.Unavailable, Message: "an earlier request with this Idempotency-Key has not begun its stream; try again", RetryAfter: time.Second}

// beginShared makes a head on the server and returns its id, or the id of the live stream with the same key, or "" if
// the id is taken. For a stream with the same key that is not live it waits as long as for one answer of the server:
// either that stream is just beginning, or it is an orphan, which will expire.
func (r *Redis) beginShared(ctx context.Context, h Head) (id string, err error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		id, live, err := r.makeHead(ctx, h)
		if err != nil || live || id == h.ID || id == "" {
			return id, err
		}
		select {
		case <-time.After(lookAgain):
		case <-late.C:
			return "", errOrphan
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// makeHead makes a head on the server, unless its key or its id has a stream. It returns the id of the stream that has the key,
// and whether that stream is live.
func (r *Redis) makeHead(ctx context.Context, h Head) (id string, live bool, err error) {
	args := append([]any{beginTTL.Milliseconds(), h.Key, h.ID, headKey("")}, r.fields(h)...)
	made, err := begin.Run(ctx, r.db, []string{headKey(h.ID), h.idempotencyKey()}, args...).Slice()
	r.answered(err)
	if err != nil {
		return "", false, err
	}
	if len(made) == 2 {
		if id, ok := made[0].(string); ok {
			return id, made[1] == int64(1), nil
		}
	}
	return "", false, fmt.Errorf("replay: the server answered a begin with %v", made)
}

// beginHere begins a stream that other instances do not know of.
func (r *Redis) beginHere(h Head) (Head, error) {
	h.Shared = false
	k, err := r.local.begin(h)
	if err != nil {
		return Head{}, err
	}
	return k.head, nil
}

// Append implements Log.
func (r *Redis) Append(id, epoch string, events ...Event) error {
	return r.local.Append(id, epoch, events...)
}

// Forget implements Log.
func (r *Redis) Forget(ctx context.Context, id, epoch string) {
	if k := r.local.drop(id, epoch); k != nil && k.head.Shared {
		r.forget(ctx, k.head)
	}
}

func (r *Redis) forget(ctx context.Context, h Head) {
	ctx = context.WithoutCancel(ctx) // the caller may have left
	r.answered(forget.Run(ctx, r.db, []string{headKey(h.ID), logKey(h.ID), h.idempotencyKey()}, h.ID, h.Epoch, wakeName(h.ID), (2 * leaseTTL).Milliseconds()).Err())
}

// Open implements Log.
func (r *Redis) Open(ctx context.Context, id string) (Reader, error) {
	if own, err := r.local.Open(ctx, id); err == nil {
		return own, nil
	}
	h, run, err := r.head(ctx, id)
	if err != nil {
		return nil, err
	}
	return &remoteReader{r: r, head: h, run: run}, nil
}

// head returns what the server knows of a stream, and which process runs it.
func (r *Redis) head(ctx context.Context, id string) (h Head, run string, err error) {
	fields, err := r.db.HGetAll(ctx, headKey(id)).Result()
	r.answered(err)
	switch {
	case err != nil:
		return Head{}, "", unavailable(err)
	case fields["run"] == "": // or it is forgotten
		return Head{}, "", ErrUnknown
	}
	h = Head{ID: id, Epoch: fields["epoch"], Owner: fields["owner"], Key: fields["key"], Body: fields["body"], Edge: fields["edge"], Shared: true}
	if h.Began, err = time.Parse(time.RFC3339Nano, fields["began"]); err != nil {
		return Head{}, "", fmt.Errorf("replay: head of a stream: %w", err)
	}
	return h, fields["run"], nil
}

// fields are what head reads.
func (r *Redis) fields(h Head) []any {
	return []any{"epoch", h.Epoch, "owner", h.Owner, "key", h.Key, "body", h.Body, "edge", h.Edge, "run", r.run, "began", h.Began.Format(time.RFC3339Nano)}
}

// Seen implements Log. While the server is down, a stream counts as seen when that began.
func (r *Redis) Seen(ctx context.Context, id string) (ago time.Duration, ok bool) {
	left, err := r.db.PTTL(ctx, seenKey(id)).Result()
	r.answered(err)
	if since := r.downSince.Load(); err != nil && since != 0 {
		return time.Since(time.Unix(0, since)), true
	}
	return seenTTL - left, left > 0
}

// Close implements Log. What has not been written yet is, if the server answers soon.
func (r *Redis) Close() error {
	timer := time.AfterFunc(lastWords, r.close)
	r.shipped.Wait()
	timer.Stop()
	r.close()
	err := errors.Join(r.db.Del(context.Background(), leaseKey(r.run)).Err(), r.pubsub.Close())
	if r.downSince.Load() != 0 {
		err = nil // it was down
	}
	r.others.Wait()
	return errors.Join(err, r.local.Close(), r.db.Close())
}

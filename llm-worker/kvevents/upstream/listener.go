// Package upstream listens to the KV cache events of the engine beside a worker, in the format of
// vLLM and SGLang, and reports to a hub which blocks the engine holds, under our names.
//
// The engine publishes batches over ZeroMQ: topic, number, msgpack. The listener connects to the
// engine's socket, or binds a socket that the engine connects to. vLLM's gRPC service relays the
// batches, too, and first sends the content of the cache (OverGRPC). A missing batch is requested
// from the engine's replay socket. If that fails, or over gRPC, all blocks are forgotten, because
// removals may have been missed. Engines name blocks by their own hashes; our names are computed
// from the token ids in the events. Blocks without a name are counted, by reason. An engine that
// restarts is followed again.
//
// Deliberately absent: blocks outside of the GPU's memory, blocks that depend on more than token ids,
// and all groups of a hybrid model's layers but one.
package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/llm-worker/kvevents"
)

// Options are the endpoints of an engine's events. The zero value means none.
type Options struct {
	// Events is the engine's PUB socket, such as tcp://127.0.0.1:5557; or the address to bind for
	// an engine that connects to us: tcp://*:5557 for all interfaces, @tcp://10.0.0.7:5557 for one. OverGRPC
	// stands for the engine's gRPC service, at Server.
	Events string
	Server string // host:port of that service
	Replay string // the engine's ROUTER socket; "" for none
	Topic  string // prefix of the topics of its batches
	// Rank is added to the ports: each data-parallel rank of vLLM and SGLang publishes on its own.
	Rank uint32
}

// Validate checks o. Its errors name the flags.
func (o *Options) Validate() error {
	if o.Events == OverGRPC {
		if o.Replay != "" || o.Topic != "" {
			return fmt.Errorf("--upstream-kv-replay and --upstream-kv-topic are of no use with --upstream-kv-events %s", OverGRPC)
		}
		return nil
	}
	_, err := parseEndpoint(o.Events, o.Rank)
	if o.Events != "" && err != nil {
		return fmt.Errorf("--upstream-kv-events: %w", err)
	}
	replay, err := parseEndpoint(o.Replay, o.Rank)
	switch {
	case o.Replay != "" && err != nil:
		return fmt.Errorf("--upstream-kv-replay: %w", err)
	case replay.bind:
		return fmt.Errorf("--upstream-kv-replay is %.64q; it must be an address to connect to: engines bind their replay sockets", o.Replay)
	case o.Events == "" && (o.Replay != "" || o.Topic != ""):
		return errors.New("--upstream-kv-replay and --upstream-kv-topic need --upstream-kv-events")
	case len(o.Topic) > 200:
		return errors.New("--upstream-kv-topic is longer than 200 bytes")
	}
	return nil
}

// A Listener reports to a hub which blocks an engine holds.
type Listener struct {
	// Static.
	opts    Options
	events  endpoint
	replay  string // an address; "" for none
	log     *slog.Logger
	dropped func(DropReason, int)

	block atomic.Int64             // tokens per block; 0 until a block has been stored
	bound atomic.Pointer[net.Addr] // the address for engines to connect to; nil while unbound

	// Owned by Run.
	names names
	next  uint64 // the number of the next batch
	// published is the number after that of the last batch that came without a replay; 0 if there was none.
	published uint64
	drops     dropLog
}

// New returns a listener that reports blocks to held. The options must be valid, and name a socket.
// dropped counts blocks without a name; it may be nil.
func New(opts Options, held *kvevents.Hub, log *slog.Logger, dropped func(DropReason, int)) *Listener {
	if dropped == nil {
		dropped = func(DropReason, int) {}
	}
	l := &Listener{opts: opts, log: log, dropped: dropped}
	l.names = names{held: held, known: make(map[uint64]uint64), most: maxKnown, drop: l.drop}
	l.events, _ = parseEndpoint(opts.Events, opts.Rank)
	if replay, err := parseEndpoint(opts.Replay, opts.Rank); err == nil {
		l.replay = replay.addr
	}
	return l
}

// drop counts blocks without a name, and logs them at most once per dropLogEvery: --policy kv must
// guess if the cache cannot be followed.
func (l *Listener) drop(reason DropReason, blocks int) {
	if blocks == 0 {
		return
	}
	l.dropped(reason, blocks)
	if counts, due := l.drops.add(reason, blocks, time.Now()); due {
		l.log.Warn("some of the engine's KV blocks cannot be named, so --policy kv does not see them", append([]any{"events", l.opts.Events}, counts...)...)
	}
}

// dropLogEvery is the shortest time between two log lines about dropped blocks.
const dropLogEvery = time.Minute

// A dropLog sums the dropped blocks since the last log line.
type dropLog struct {
	counts map[DropReason]int
	next   time.Time
}

// add counts blocks. When a log line is due, it returns all counts as attributes and resets them.
func (d *dropLog) add(reason DropReason, blocks int, now time.Time) (attributes []any, due bool) {
	if d.counts == nil {
		d.counts = make(map[DropReason]int)
	}
	d.counts[reason] += blocks
	if now.Before(d.next) {
		return nil, false
	}
	for _, r := range []DropReason{UnknownParent, NotPlainText, OtherGroup, Malformed} {
		if n := d.counts[r]; n > 0 {
			attributes = append(attributes, string(r), n)
		}
	}
	clear(d.counts)
	d.next = now.Add(dropLogEvery)
	return attributes, true
}

// Block returns the number of tokens per block of the engine; 0 while unknown.
func (l *Listener) Block() int { return int(l.block.Load()) }

// follow applies the batches of a subscribed connection, and returns the error that ended it.
func (l *Listener) follow(ctx context.Context, c *conn) error {
	if err := c.send(append([]byte{1}, l.opts.Topic...)); err != nil {
		return err
	}
	l.log.Info("listening to the engine's KV events", "events", l.opts.Events, "engine", c.RemoteAddr().String())
	l.startOver()
	l.catchUp(ctx, math.MaxUint64) // the blocks that the engine holds already
	for {
		frames, err := c.receive()
		if err != nil {
			return err
		}
		if len(frames) != 3 || len(frames[1]) != 8 {
			return fmt.Errorf("a message of %d frames is not a batch of events", len(frames))
		}
		if err := l.receive(ctx, binary.BigEndian.Uint64(frames[1]), frames[2]); err != nil {
			return err
		}
	}
}

// receive applies a batch that the engine has published. The batches that were published during a replay come
// twice, and the second time is skipped, unless it clears the cache: then that batch and the later ones are
// applied again, with the same result.
func (l *Listener) receive(ctx context.Context, number uint64, payload []byte) error {
	l.checkNumber(ctx, number)
	events, err := parse(payload)
	if err != nil {
		return fmt.Errorf("batch %d: %w", number, err)
	}
	clears := func(e event) bool { return e.kind == allCleared }
	if number < l.next && !slices.ContainsFunc(events, clears) {
		return nil // the replay has included it
	}
	l.apply(number, events)
	return nil
}

// checkNumber compares the number of a published batch with that of the batch before it. An engine's numbers only
// rise: a lower one is of another engine, or of one that has restarted behind a proxy of its socket. A gap is
// filled by a replay. After a restart, or a gap that remains, all blocks are forgotten.
func (l *Listener) checkNumber(ctx context.Context, number uint64) {
	if number < l.published || l.published == 0 && number == 0 && l.next > 1 {
		l.log.Warn("the engine's KV events are numbered anew, so it has restarted: its blocks are unknown until they are stored again", "from", l.next, "to", number)
		l.names.clear()
		l.startOver()
	}
	l.published = number + 1
	if number > l.next {
		l.catchUp(ctx, number)
	}
	if number > l.next && l.next > 0 {
		l.log.Warn("lost batches of the engine's KV events, so its blocks are unknown until they are stored again", "from", l.next, "to", number-1)
		l.names.clear()
	}
}

// startOver forgets the numbers of the batches so far, and which group of blocks is followed.
func (l *Listener) startOver() {
	l.next, l.published = 0, 0
	l.names.reset()
}

// apply applies the events of a batch.
func (l *Listener) apply(number uint64, events []event) {
	for i := range events {
		l.names.apply(&events[i])
	}
	l.next = number + 1
	l.block.Store(int64(l.names.size))
}

// replayTimeout bounds a replay, while newer batches wait in the connection.
const replayTimeout = 5 * time.Second

// catchUp requests the batches from the next number up to below. If that fails, the gap remains.
func (l *Listener) catchUp(ctx context.Context, below uint64) {
	if l.replay == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	if err := l.replayed(ctx, below); err != nil && ctx.Err() == nil {
		l.log.Warn("engine does not replay its KV events, so blocks that it stored before are unknown", "replay", l.opts.Replay, "err", err)
	}
}

// end is the number of the message after a replay.
const end = math.MaxUint64

func (l *Listener) replayed(ctx context.Context, below uint64) error {
	c, err := dial(ctx, l.replay, dealer)
	if err != nil {
		return err
	}
	defer closeWith(ctx, c)()
	if err := c.send(nil, binary.BigEndian.AppendUint64(nil, l.next)); err != nil {
		return err
	}
	for l.next < below {
		frames, err := c.receive()
		if err != nil {
			return err
		}
		if len(frames) > 0 && len(frames[0]) == 0 { // the empty delimiter that a REQ socket would remove
			frames = frames[1:]
		}
		if len(frames) < 2 || len(frames[len(frames)-2]) != 8 {
			return fmt.Errorf("a message of %d frames is not a batch of events", len(frames))
		}
		number := binary.BigEndian.Uint64(frames[len(frames)-2])
		switch {
		case number == end:
			return nil
		case number < l.next:
			continue
		case number > l.next && l.next > 0:
			return fmt.Errorf("the oldest batch that the engine replays is %d, and %d is needed", number, l.next)
		}
		events, err := parse(frames[len(frames)-1])
		if err != nil {
			return fmt.Errorf("batch %d: %w", number, err)
		}
		l.apply(number, events)
	}
	return nil
}

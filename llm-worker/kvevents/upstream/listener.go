// Package upstream listens to what the engine beside a worker says of its KV cache, in the form of vLLM and SGLang, and tells it in
// ours.
//
// The engine publishes batches over ZeroMQ: topic, number, msgpack. A batch that is missing is asked for at the engine's replay socket,
// and where that does not help everything is forgotten, for then nobody knows what was removed. Engines name blocks by hashes
// of their own; the token ids that come with them give ours. An engine that goes and comes back is followed again.
//
// Deliberately absent: blocks in other memory than the GPU's, and those that depend on more than token ids.
package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/llm-worker/kvevents"
)

// Options say where an engine publishes. The zero value is nowhere.
type Options struct {
	Events string // its PUB socket, such as tcp://127.0.0.1:5557
	Replay string // its ROUTER socket; "" for none
	Topic  string // what its batches begin with
}

// Validate reports what is wrong with o, by the names of flags.
func (o *Options) Validate() error {
	for flag, at := range map[string]string{"--upstream-kv-events": o.Events, "--upstream-kv-replay": o.Replay} {
		if _, err := address(at); at != "" && err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	switch {
	case o.Events == "" && (o.Replay != "" || o.Topic != ""):
		return errors.New("--upstream-kv-replay and --upstream-kv-topic are of use only with --upstream-kv-events")
	case len(o.Topic) > 200:
		return errors.New("--upstream-kv-topic is longer than 200 bytes")
	}
	return nil
}

// address returns the host:port of a ZeroMQ endpoint.
func address(endpoint string) (string, error) {
	addr, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return "", fmt.Errorf("%.64q is not like tcp://127.0.0.1:5557", endpoint)
	}
	_, _, err := net.SplitHostPort(addr)
	return addr, err
}

// A Listener tells a hub what an engine holds.
type Listener struct {
	// Static.
	opts           Options
	events, replay string // addresses
	log            *slog.Logger

	block atomic.Int64 // tokens of a block; 0 until one has been stored

	// Owned by Run.
	names names
	next  uint64 // the number of the batch to come
}

// New returns a listener that tells held. The options must be valid, and name a socket.
func New(opts Options, held *kvevents.Hub, log *slog.Logger) *Listener {
	l := &Listener{opts: opts, log: log, names: names{held: held, known: make(map[uint64]uint64), most: maxKnown}}
	l.events, _ = address(opts.Events)
	l.replay, _ = address(opts.Replay)
	return l
}

// Block returns how many tokens are in a block of the engine; 0 while that is not known.
func (l *Listener) Block() int { return int(l.block.Load()) }

// redialEvery is how long a listener waits for an engine that is not there.
const redialEvery = time.Second

// Run listens until ctx is done.
func (l *Listener) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	said := false
	for {
		err := l.listen(ctx, func() { said = false })
		l.names.clear()
		if ctx.Err() != nil {
			return
		}
		if !said {
			l.log.Warn("engine tells no blocks", "events", l.opts.Events, "err", err)
			said = true
		}
		timer.Reset(redialEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// open connects, until ctx is done or close is called.
func open(ctx context.Context, addr, socket string) (c *conn, closed func(), err error) {
	if c, err = dial(ctx, addr, socket); err != nil {
		return nil, nil, err
	}
	undo := context.AfterFunc(ctx, func() { _ = c.Close() })
	return c, func() { undo(); _ = c.Close() }, nil
}

// listen listens on one connection, and returns why that ended.
func (l *Listener) listen(ctx context.Context, connected func()) error {
	c, closed, err := open(ctx, l.events, "SUB")
	if err != nil {
		return err
	}
	defer closed()
	if err := c.send(append([]byte{1}, l.opts.Topic...)); err != nil {
		return err
	}
	l.log.Info("listening to the engine's blocks", "events", l.opts.Events)
	connected()
	l.next = 0
	l.catchUp(ctx, math.MaxUint64) // what it holds already
	for {
		frames, err := c.receive()
		if err != nil {
			return err
		}
		if len(frames) != 3 || len(frames[1]) != 8 {
			return fmt.Errorf("a message of %d frames is no batch of events", len(frames))
		}
		number := binary.BigEndian.Uint64(frames[1])
		if number > l.next {
			l.catchUp(ctx, number)
		}
		if number > l.next && l.next > 0 {
			l.log.Warn("batches of the engine's blocks are lost", "from", l.next, "to", number-1)
			l.names.clear()
		}
		if number < l.next {
			continue // it was replayed
		}
		if err := l.take(number, frames[2]); err != nil {
			return err
		}
	}
}

// take applies a batch.
func (l *Listener) take(number uint64, payload []byte) error {
	events, err := parse(payload)
	if err != nil {
		return fmt.Errorf("batch %d: %w", number, err)
	}
	for i := range events {
		l.names.apply(&events[i])
	}
	l.next = number + 1
	l.block.Store(int64(l.names.size))
	return nil
}

// replayTimeout bounds what a replay may take, while newer batches wait in the connection.
const replayTimeout = 5 * time.Second

// catchUp asks for the batches from the next on, below a number. If that fails there is a gap, as there was.
func (l *Listener) catchUp(ctx context.Context, below uint64) {
	if l.replay == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	if err := l.replayed(ctx, below); err != nil && ctx.Err() == nil {
		l.log.Warn("engine replays no blocks", "replay", l.opts.Replay, "err", err)
	}
}

// end is the number of the message behind a replay.
const end = math.MaxUint64

func (l *Listener) replayed(ctx context.Context, below uint64) error {
	c, closed, err := open(ctx, l.replay, "DEALER")
	if err != nil {
		return err
	}
	defer closed()
	if err := c.send(nil, binary.BigEndian.AppendUint64(nil, l.next)); err != nil {
		return err
	}
	for l.next < below {
		frames, err := c.receive()
		if err != nil {
			return err
		}
		if len(frames) > 0 && len(frames[0]) == 0 { // what a REQ socket would not show
			frames = frames[1:]
		}
		if len(frames) < 2 || len(frames[len(frames)-2]) != 8 {
			return fmt.Errorf("a message of %d frames is no batch of events", len(frames))
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
		if err := l.take(number, frames[len(frames)-1]); err != nil {
			return err
		}
	}
	return nil
}

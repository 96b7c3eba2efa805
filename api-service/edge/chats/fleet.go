// Package chats is the chat-services behind an api-service: one or several, wherever they are found.
//
// Each stream goes to one of them, the one with the fewest of this process's streams. One that does not answer is avoided, and its
// streams go on at another one. What is asked about streams, models and workers is asked of all.
package chats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/discover"
	"github.com/whence-dev/whence/pkg/stream"
)

const (
	// Hop is the chat-service's name in paths, when it cannot name itself.
	Hop = "chat-service"
	// maxPeers bounds a fleet, because all of it may be asked at once.
	maxPeers = 64
	// maxTries bounds how many chat-services are asked for one stream.
	maxTries = 3
)

// An Engine answers conversations.
type Engine = stream.Engine[*chatv1.ChatRequest, *chatv1.GenerateResponse]

// An EmbedEngine makes vectors of texts.
type EmbedEngine = stream.Engine[*chatv1.EmbeddingsRequest, *chatv1.EmbeddingsResponse]

// A Fleet is the chat-services.
type Fleet struct {
	// Static.
	self    string
	source  *discover.Source
	connect Connect
	log     *slog.Logger
	within  time.Duration // moveWithin, but in tests

	peers atomic.Pointer[[]*peer] // replaced by set, never changed

	mu    sync.Mutex  // guards the following fields, and is held while peers is replaced
	turn  int         // of choose
	probe func(*peer) // has a chat-service watched; nil while Run does not run
}

// A Connect connects to the chat-service at addr, a host:port. It does not wait for the connection.
type Connect func(addr string) (Conn, error)

// A Conn is a connection to one chat-service.
type Conn interface {
	grpc.ClientConnInterface
	io.Closer
}

// New returns the chat-services of source. self is this hop's name.
func New(self string, source *discover.Source, log *slog.Logger) (*Fleet, error) {
	return NewOver(nil, self, source, log)
}

// NewOver is New over connections of connect; nil means Kitex clients.
func NewOver(connect Connect, self string, source *discover.Source, log *slog.Logger) (*Fleet, error) {
	if connect == nil {
		connect = overKitex
	}
	f := &Fleet{self: self, source: source, connect: connect, log: log, within: moveWithin}
	f.peers.Store(new([]*peer))
	return f, f.set(source.Static()) // before Run, for those who ask before
}

// Run finds chat-services and probes them, until ctx is done. Where there is only one, the log still says when it cannot be reached.
func (f *Fleet) Run(ctx context.Context) {
	var all sync.WaitGroup
	f.mu.Lock()
	f.probe = func(p *peer) {
		watching, unwatch := context.WithCancel(ctx)
		p.unwatch = unwatch
		all.Go(func() {
			defer unwatch()
			p.watch(watching, f.log)
		})
	}
	for _, p := range f.all() {
		f.probe(p)
	}
	f.mu.Unlock()
	f.source.Watch(ctx, f.log, func(found []discover.Target) {
		var addrs []string
		for _, t := range found {
			addrs = append(addrs, t.Addr)
		}
		if err := f.set(addrs); err != nil {
			f.log.Warn("some chat-services are left out", "err", err)
		}
	})
	f.mu.Lock()
	f.probe = nil
	f.mu.Unlock()
	all.Wait()
}

// Answers reports whether the source of addresses does.
func (f *Fleet) Answers() bool { return f.source.Answers() }

// Close closes the connections. The streams must have ended, and so must Run.
func (f *Fleet) Close() { _ = f.set(nil) } // it fails only for those that come

// set makes the chat-services at addrs the fleet. One that is no longer among them finishes its streams.
func (f *Fleet) set(addrs []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.all()
	var after []*peer
	var errs []error
	for _, addr := range addrs {
		if len(after) == maxPeers {
			errs = append(errs, fmt.Errorf("there are %d chat-services; %d are the most", len(addrs), maxPeers))
			break
		}
		at := slices.IndexFunc(before, func(p *peer) bool { return p.addr == addr })
		if at >= 0 {
			after = append(after, before[at])
			continue
		}
		name := Hop
		if len(f.source.Static()) != 1 {
			name += "/" + addr
		}
		p, err := dial(f.connect, f.self, name, addr)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if f.probe != nil {
			f.probe(p)
		}
		after = append(after, p)
	}
	f.peers.Store(&after)
	for _, p := range before {
		if !slices.Contains(after, p) {
			p.leave()
		}
	}
	return errors.Join(errs...)
}

func (f *Fleet) all() []*peer { return *f.peers.Load() }

// well returns those that answer, or all if none does: they may have been busy for a moment.
func (f *Fleet) well() []*peer {
	all := f.all()
	well := slices.DeleteFunc(slices.Clone(all), func(p *peer) bool { return p.ill.Load() })
	if len(well) == 0 {
		return all
	}
	return well
}

// choose returns the one with the fewest streams, each in turn of several that have as few, and counts a stream as its own; nil
// if all were tried.
func (f *Fleet) choose(tried []*peer) (best *peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	peers := slices.DeleteFunc(slices.Clone(f.well()), func(p *peer) bool { return slices.Contains(tried, p) })
	f.turn++
	for i := range peers {
		if p := peers[(f.turn+i)%len(peers)]; best == nil || p.live.Load() < best.live.Load() {
			best = p
		}
	}
	if best != nil {
		best.live.Add(1)
	}
	return best
}

// Generate is an Engine.
func (f *Fleet) Generate(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
	return func(yield func(*chatv1.GenerateResponse, error) bool) {
		c := newCourse(f, req, yield)
		for p := c.next(ctx); p != nil; p = c.next(ctx) {
			err := run(ctx, p, p.engine, c.request(), func(out *chatv1.GenerateResponse) bool { return c.deliver(ctx, p, out) })
			if err == nil {
				return
			}
			c.lost(ctx, p, err)
		}
		if cause := stream.Cause(ctx); cause != nil {
			c.ending = cause
		}
		c.end()
	}
}

// Embed is an EmbedEngine. What one chat-service does not answer another one is asked.
func (f *Fleet) Embed(ctx context.Context, req *chatv1.EmbeddingsRequest) iter.Seq2[*chatv1.EmbeddingsResponse, error] {
	return stream.Unary(func(ctx context.Context, req *chatv1.EmbeddingsRequest) (answer *chatv1.EmbeddingsResponse, err error) {
		var tried []*peer
		for err = errNobody; len(tried) < maxTries && (len(tried) == 0 || elsewhere(err)) && stream.Cause(ctx) == nil; {
			p := f.choose(tried)
			if p == nil {
				break
			}
			tried = append(tried, p)
			err = run(ctx, p, p.embed, req, func(out *chatv1.EmbeddingsResponse) bool {
				answer = out
				return true
			})
			if err == nil {
				return answer, nil
			}
		}
		return nil, err
	})(ctx, req)
}

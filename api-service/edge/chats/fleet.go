// Package chats picks the chat-service of each stream, from one or several discovered
// chat-services.
//
// A stream goes to the chat-service with the fewest streams of this process. A chat-service that
// does not answer is avoided, and its streams move to another one. Questions about streams, models
// and workers go to all chat-services.
package chats

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	// Hop is the chat-service's name in paths until it has reported its own.
	Hop = "chat-service"
	// maxPeers bounds a fleet, because requests such as Models go to all of it at once.
	maxPeers = 64
	// maxTries bounds the chat-services that are tried for one stream.
	maxTries = 3
)

// An Engine answers conversations. An item is valid until Item returns.
type Engine = stream.Engine[*chatv1.ChatRequest, *chatv1.GenerateResponse]

// A reader takes the answer of a stream.
type reader = stream.Reader[*chatv1.GenerateResponse]

// An EmbedEngine computes vectors of texts.
type EmbedEngine = stream.Engine[*chatv1.EmbeddingsRequest, *chatv1.EmbeddingsResponse]

// A ScoreEngine rates documents.
type ScoreEngine = stream.Engine[*chatv1.ScoreRequest, *chatv1.ScoreResponse]

// A Fleet is the set of chat-services.
type Fleet struct {
	// Static.
	self    string
	source  *discover.Source
	connect Connect
	log     *slog.Logger
	within  time.Duration // moveWithin, except in tests

	peers atomic.Pointer[[]*peer] // replaced by set, never changed

	mu    sync.Mutex  // guards the following fields, and is held while peers is replaced
	turn  int         // rotates ties in choose
	probe func(*peer) // starts the probes of a chat-service; nil while Run does not run
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
		connect = OverKitex(nil)
	}
	f := &Fleet{self: self, source: source, connect: connect, log: log, within: moveWithin}
	f.peers.Store(new([]*peer))
	return f, f.set(source.Static()) // before Run, for callers that do not run it
}

// Run discovers and probes chat-services until ctx is done. Run probes even a single chat-service,
// so that the log reports when that chat-service cannot be reached.
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
	f.source.Watch(ctx, f.log, f.healthy, func(found []discover.Target) {
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

// Resumes reports whether another chat-service continues a stream whose chat-service is lost. The
// other chat-service gets the whole request again.
func (f *Fleet) Resumes() bool { return len(f.source.Static()) != 1 }

// Answers reports whether the source of addresses answers.
func (f *Fleet) Answers() bool { return f.source.Answers() }

// Close closes the connections. The streams must have ended, and Run must have returned.
func (f *Fleet) Close() { _ = f.set(nil) } // set fails only for new addresses

// set replaces the addresses of the fleet. A chat-service that is no longer listed finishes its
// streams.
func (f *Fleet) set(addrs []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.all()
	var after []*peer
	var errs []error
	for _, addr := range addrs {
		if len(after) == maxPeers {
			errs = append(errs, fmt.Errorf("%d chat-services are listed, but at most %d are used", len(addrs), maxPeers))
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

// healthy reports whether a chat-service of the fleet has answered its last probe.
func (f *Fleet) healthy(addr string) bool {
	return slices.ContainsFunc(f.all(), func(p *peer) bool { return p.addr == addr && !p.ill.Load() })
}

// well returns the healthy chat-services, or all if none is healthy: they may have been busy for a
// moment.
func (f *Fleet) well() []*peer {
	all := f.all()
	well := slices.DeleteFunc(slices.Clone(all), func(p *peer) bool { return p.ill.Load() })
	if len(well) == 0 {
		return all
	}
	return well
}

// choose returns the untried chat-service with the fewest streams, and counts one more stream for
// it; ties rotate. It returns nil if all were tried.
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

// Start is an Engine.
func (f *Fleet) Start(ctx context.Context, req *chatv1.ChatRequest, to reader) {
	newFailover(ctx, f, req, to).start()
}

// Embed is an EmbedEngine. If one chat-service does not answer, another one is called.
func (f *Fleet) Embed(ctx context.Context, req *chatv1.EmbeddingsRequest, to stream.Reader[*chatv1.EmbeddingsResponse]) {
	once(f, func(p *peer) EmbedEngine { return p.embed })(ctx, req, to)
}

// Score is a ScoreEngine. It is like Embed.
func (f *Fleet) Score(ctx context.Context, req *chatv1.ScoreRequest, to stream.Reader[*chatv1.ScoreResponse]) {
	once(f, func(p *peer) ScoreEngine { return p.score })(ctx, req, to)
}

// once returns an engine whose answers are one item. If one chat-service does not answer, another one is
// called.
func once[Req, Resp any](f *Fleet, of func(*peer) stream.Engine[Req, Resp]) stream.Engine[Req, Resp] {
	return stream.Unary(func(ctx context.Context, req Req) (answer Resp, err error) {
		var none Resp
		var tried []*peer
		renames := 0
		for err = errNobody; len(tried) < maxTries && (len(tried) == 0 || elsewhere(err)) && stream.Cause(ctx) == nil; {
			p := f.choose(tried)
			if p == nil {
				break
			}
			tried = append(tried, p)
			err = run(ctx, p, of(p).Range, req, func(out Resp) bool {
				answer = out
				return true
			})
			if err == nil {
				return answer, nil
			}
			if renamed(ctx, err, renames) {
				renames++
				tried = nil
			}
		}
		return none, err
	})
}

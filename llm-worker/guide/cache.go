package guide

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/json"
	"runtime"
	"sync"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Cache compiles the guides of one vocabulary, and keeps the latest for later requests. Concurrent
// requests for one guide compile it once. It is safe for concurrent use.
type Cache struct {
	// Static.
	compile  func(*llmv1.Guide) (*Guide, error)
	panicked func(value any) error
	slots    chan struct{} // one for each guide that is being compiled
	most     int           // maximum number of entries
	mostSize int           // and of their bytes

	running sync.WaitGroup // the goroutines that compile

	mu      sync.Mutex // guards the following fields, and those of entries
	entries map[cacheKey]*list.Element
	recent  *list.List // of *entry, the most recently used first
	size    int        // of all entries, in bytes
	closed  bool
}

// Bounds of a Cache. The least recently used guides leave it first.
const (
	maxCached      = 256
	maxCachedBytes = 64 << 20
)

type cacheKey [sha256.Size]byte

// An entry is the result of a compilation, or a compilation that runs or waits for its slot.
type entry struct {
	key      cacheKey
	waiting  int           // number of requests that wait for the result
	left     chan struct{} // closed when none waits any more and the compilation has not begun
	begun    bool
	failed   bool // the compilation panicked
	size     int
	compiled chan struct{} // closed when guide and err are set
	guide    *Guide
	err      error
}

// NewCache returns an empty cache. panicked makes the error of a request whose guide could not be
// compiled because of a panic; it is called where the panic is recovered.
func NewCache(v *Vocabulary, panicked func(value any) error) *Cache {
	return &Cache{
		compile:  func(g *llmv1.Guide) (*Guide, error) { return New(v, g) },
		panicked: panicked,
		slots:    make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), // the model needs the other cores
		most:     maxCached,
		mostSize: maxCachedBytes,
		entries:  map[cacheKey]*list.Element{},
		recent:   list.New(),
	}
}

// Guide returns the compiled guide. It returns at once with stream.Cause if the stream of ctx is
// stopped while the guide compiles. Its other errors are those of New.
func (c *Cache) Guide(ctx context.Context, g *llmv1.Guide) (*Guide, error) {
	key, err := keyOf(g)
	if err != nil {
		return nil, err
	}
	e := c.enter(key, g)
	if e == nil {
		return nil, streamerr.New(streamerr.Draining, "the engine has ended")
	}
	select {
	case <-e.compiled:
		c.leave(e)
		return e.guide, e.err
	case <-stream.Stopping(ctx):
		c.leave(e)
		return nil, stream.Cause(ctx)
	}
}

// Close waits for the compilations that run. Later requests end with DRAINING.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait()
}

// enter returns the entry of a guide, which the caller must leave, and begins to compile a new one.
// It returns nil if the cache is closed.
func (c *Cache) enter(key cacheKey, g *llmv1.Guide) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if known := c.entries[key]; known != nil {
		c.recent.MoveToFront(known)
		e := entryOf(known)
		e.waiting++
		return e
	}
	e := &entry{key: key, waiting: 1, left: make(chan struct{}), compiled: make(chan struct{})}
	c.entries[key] = c.recent.PushFront(e)
	c.running.Go(func() { c.run(e, g) })
	return e
}

// leave ends the wait of a request. A compilation for which no request waits does not begin.
func (c *Cache) leave(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.waiting--; e.waiting == 0 && !e.begun {
		c.drop(e)
		close(e.left)
	}
}

// run compiles a guide when a slot is free.
func (c *Cache) run(e *entry, g *llmv1.Guide) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-e.left:
		return
	}
	if !c.begin(e) {
		return
	}
	defer close(e.compiled)
	defer c.keep(e)
	defer func() {
		if v := recover(); v != nil {
			e.err, e.failed = c.panicked(v), true
		}
	}()
	e.guide, e.err = c.compile(g)
}

// begin reports whether a request still waits for an entry, and marks the entry.
func (c *Cache) begin(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.begun = e.waiting > 0
	return e.begun
}

// errorSize is the size of an entry without a guide.
const errorSize = 1 << 10

// keep counts the size of a compiled entry, and evicts entries above the bounds. After a panic the
// next request compiles the guide again.
func (c *Cache) keep(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.failed {
		c.drop(e)
		return
	}
	e.size = errorSize
	if e.guide != nil {
		e.size += e.guide.size
	}
	c.size += e.size
	for oldest := c.recent.Back(); oldest != nil && (c.recent.Len() > c.most || c.size > c.mostSize); {
		next := oldest.Prev()
		if old := entryOf(oldest); old.size > 0 { // otherwise it is being compiled
			c.drop(old)
		}
		oldest = next
	}
}

// drop removes an entry. Requests that wait for it still get its result.
func (c *Cache) drop(e *entry) {
	if at := c.entries[e.key]; at != nil && entryOf(at) == e {
		c.recent.Remove(at)
		delete(c.entries, e.key)
		c.size -= e.size
	}
}

func entryOf(at *list.Element) *entry {
	e, _ := at.Value.(*entry)
	return e
}

// keyOf returns the key of a guide. White space in schemas makes no difference; the order of
// members does, because answers have it.
func keyOf(g *llmv1.Guide) (cacheKey, error) {
	normal := proto.CloneOf(g)
	compact := func(schema *string) {
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(*schema)) == nil {
			*schema = compact.String()
		}
	}
	for _, form := range normal.GetForms() {
		compact(&form.Schema)
		for _, part := range form.GetParts() {
			compact(&part.Schema)
		}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(normal)
	return sha256.Sum256(b), err
}

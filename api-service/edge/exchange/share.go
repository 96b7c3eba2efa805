package exchange

import (
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// freeBody is the part of each body that needs no share of the memory for long bodies, in bytes.
	freeBody = 2 << 20
	// maxBodies bounds the memory for long bodies whose requests have not been passed on, in bytes.
	maxBodies = 512 << 20
	// maxOwned bounds the part of maxBodies that the bodies of one owner take.
	maxOwned = maxBodies / 4
)

// Bodies bounds the memory of long bodies, for all callers and for each. The zero value is ready to
// use.
type Bodies struct {
	mu    sync.Mutex
	all   int64
	owned map[string]int64
}

// A share is the part of the memory that one body has.
type share struct {
	of    *Bodies
	owner string
	size  int64 // guarded by mu of Bodies; 0 once it was given back
}

// take takes a share of the memory for a body of an owner. The share is returned when the request has
// been passed on (Release), or its handlers have returned.
func (b *Bodies) take(c *app.RequestContext, owner string, size int64) (*share, error) {
	s, err := b.share(owner, size)
	if err == nil {
		c.Set(shareKey, s)
	}
	return s, err
}

// Share takes a share of the memory for a message of an owner, or for what is kept of it. shrink returns
// what it does not need; it may be called more than once.
func (b *Bodies) Share(owner string, size int64) (shrink func(to int64), err error) {
	s, err := b.share(owner, size)
	if err != nil {
		return nil, err
	}
	return s.shrink, nil
}

func (b *Bodies) share(owner string, size int64) (*share, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all+size > maxBodies || b.owned[owner]+size > maxOwned {
		return nil, &streamerr.Error{Reason: streamerr.Overloaded, Message: "too many long requests arrive at the same time; try again", RetryAfter: time.Second}
	}
	if b.owned == nil {
		b.owned = map[string]int64{}
	}
	s := &share{b, owner, size}
	b.all += size
	b.owned[owner] += size
	return s, nil
}

// shrink returns what the body does not need.
func (s *share) shrink(to int64) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	less := max(0, s.size-to)
	s.size -= less
	s.of.all -= less
	if s.of.owned[s.owner] -= less; s.of.owned[s.owner] == 0 {
		delete(s.of.owned, s.owner)
	}
}

// shareKey is the key of the share of a request's body.
const shareKey = "whence-body-share"

// Release returns the function that returns the share of a request's body, once the body is no longer
// needed, or nil if it has none.
func Release(c *app.RequestContext) func() {
	s, ok := c.Get(shareKey)
	if !ok {
		return nil
	}
	return func() { s.(*share).shrink(0) } //nolint:forcetypeassert // take has set it
}

// endShare returns the share of a request's body, if it has one.
func endShare(c *app.RequestContext) {
	if end := Release(c); end != nil {
		end()
	}
}

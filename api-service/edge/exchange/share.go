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

// take takes a share of the memory for a body of an owner. The share is returned when the handlers
// of c have returned.
func (b *Bodies) take(c *app.RequestContext, owner string, size int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all+size > maxBodies || b.owned[owner]+size > maxOwned {
		return &streamerr.Error{Reason: streamerr.Overloaded, Message: "too many long requests arrive at the same time; try again", RetryAfter: time.Second}
	}
	if b.owned == nil {
		b.owned = map[string]int64{}
	}
	b.all += size
	b.owned[owner] += size
	c.Set(shareKey, func() { b.giveBack(owner, size) })
	return nil
}

func (b *Bodies) giveBack(owner string, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= size
	if b.owned[owner] -= size; b.owned[owner] == 0 {
		delete(b.owned, owner)
	}
}

// shareKey is the key of the function that returns the share of a request's body.
const shareKey = "whence-body-share"

// endShare returns the share of a request's body, if it has one.
func endShare(c *app.RequestContext) {
	if end, ok := c.Get(shareKey); ok {
		end.(func())() //nolint:forcetypeassert // take has set it
	}
}

package image

import (
	"context"
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// maxRequests bounds the requests that fetch images at the same time. Further requests wait,
	// for at most Limits.Timeout.
	maxRequests = 64
	// maxOwned bounds the places of one tenant, so that a tenant whose servers are slow leaves
	// places for others.
	maxOwned = maxRequests / 4
)

// places are the places of requests that fetch images.
type places struct {
	all chan struct{}

	mu    sync.Mutex // guards the following field
	owned map[string]*share
}

// A share is the places of one tenant.
type share struct {
	places chan struct{}
	users  int // number of requests that have a place or wait for one
}

func newPlaces() *places {
	return &places{all: make(chan struct{}, maxRequests), owned: map[string]*share{}}
}

// take waits for a place. Requests without a tenant share all places. release is nil if ctx is done first.
func (p *places) take(ctx context.Context, tenant string) (release func()) {
	drop := func() {}
	if tenant != "" {
		own := p.share(tenant)
		select {
		case own.places <- struct{}{}:
			drop = func() {
				<-own.places
				p.leave(tenant)
			}
		case <-ctx.Done():
			p.leave(tenant)
			return nil
		}
	}
	select {
	case p.all <- struct{}{}:
		return func() {
			<-p.all
			drop()
		}
	case <-ctx.Done():
		drop()
		return nil
	}
}

func (p *places) share(tenant string) *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.owned[tenant]
	if own == nil {
		own = &share{places: make(chan struct{}, maxOwned)}
		p.owned[tenant] = own
	}
	own.users++
	return own
}

func (p *places) leave(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.owned[tenant]; own.users > 1 {
		own.users--
	} else {
		delete(p.owned, tenant)
	}
}

// busy refuses a request that has not got a place in time.
func busy(s *Source) error {
	return &streamerr.Error{Reason: streamerr.Overloaded, Param: s.Param, Message: s.Param + " cannot be fetched now: too many images are being fetched; try again later", RetryAfter: time.Second}
}

package besidetest

import (
	"net/http"
	"sync"
)

// Callers counts the POSTs of each connection.
type Callers struct {
	mu    sync.Mutex
	posts map[string]int // by the address of the caller
}

// Of returns a handler that counts before it calls h.
func (c *Callers) Of(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			c.mu.Lock()
			if c.posts == nil {
				c.posts = make(map[string]int)
			}
			c.posts[r.RemoteAddr]++
			c.mu.Unlock()
		}
		h.ServeHTTP(w, r)
	})
}

// Twice reports whether a connection has had two POSTs.
func (c *Callers) Twice() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.posts {
		if n > 1 {
			return true
		}
	}
	return false
}

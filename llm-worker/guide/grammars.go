package guide

import (
	"container/list"
	"sync"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// Grammars are the results of GBNF for the latest guides: requests repeat them, and a large schema takes
// milliseconds. It is safe for concurrent use. Its bounds are those of a Cache; the least recently used
// grammars leave it first. The zero value is empty.
type Grammars struct {
	mu      sync.Mutex // guards the following fields
	entries map[cacheKey]*list.Element
	recent  list.List // of *writing, the most recently used first
	size    int       // bytes of all texts
}

// A writing is the result of GBNF for a guide.
type writing struct {
	key  cacheKey
	text string
	err  error
}

func (w *writing) size() int { return errorSize + len(w.text) }

// GBNF returns what the function GBNF returns for g.
func (c *Grammars) GBNF(g *llmv1.Guide) (string, error) {
	key, err := keyOf(g)
	if err != nil {
		return "", err
	}
	if known := c.find(key); known != nil {
		return known.text, known.err
	}
	made := &writing{key: key}
	made.text, made.err = GBNF(g) // two requests at the same time may both write it
	c.keep(made)
	return made.text, made.err
}

func (c *Grammars) find(key cacheKey) *writing {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.entries[key]
	if known == nil {
		return nil
	}
	c.recent.MoveToFront(known)
	return known.Value.(*writing) //nolint:forcetypeassert // keep's
}

func (c *Grammars) keep(made *writing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[cacheKey]*list.Element{}
	}
	if c.entries[made.key] != nil {
		return
	}
	c.entries[made.key] = c.recent.PushFront(made)
	c.size += made.size()
	for c.recent.Len() > maxCached || c.size > maxCachedBytes {
		old := c.recent.Remove(c.recent.Back()).(*writing) //nolint:forcetypeassert // keep's
		delete(c.entries, old.key)
		c.size -= old.size()
	}
}

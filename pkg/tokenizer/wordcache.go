package tokenizer

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

const (
	// cacheSlots is the maximum number of cached words, which take about 3 MB including their ids.
	cacheSlots = 1 << 14
	// maxCachedWord is the maximum length of a cached word, in bytes. Longer words seldom repeat.
	maxCachedWord = 48
)

// A wordCache caches the ids of recent words: texts repeat words, and finding the tokens of a word
// is most of the cost of encoding. It is safe for concurrent use.
//
// It is a direct-mapped table. Every word has one slot, and a new word evicts the old word of the
// slot. So the cache is bounded and needs no lock, and a hostile text can at most empty it.
type wordCache struct {
	seed  maphash.Seed
	slots [cacheSlots]cacheSlot
}

// A cacheSlot is the place of a word in a cache. It is nil for a word that is too long to be
// cached.
type cacheSlot struct{ word atomic.Pointer[cachedWord] }

// A cachedWord is immutable after it has been stored in a slot.
type cachedWord struct {
	word string
	ids  []uint32
}

// newWordCache returns an empty cache.
func newWordCache() *wordCache { return &wordCache{seed: maphash.MakeSeed()} }

// Slot returns the slot of word.
func (c *wordCache) Slot(word string) *cacheSlot {
	if len(word) > maxCachedWord {
		return nil
	}
	return &c.slots[maphash.String(c.seed, word)%cacheSlots]
}

// Find returns the ids of word if the slot has them. They must not be changed.
func (s *cacheSlot) Find(word string) (ids []uint32, ok bool) {
	if s == nil {
		return nil, false
	}
	hit := s.word.Load()
	if hit == nil || hit.word != word {
		return nil, false
	}
	return hit.ids, true
}

// Store puts a word into the slot. It copies word and ids, because word is a part of the caller's text
// and ids is a part of the caller's result.
func (s *cacheSlot) Store(word string, ids []uint32) {
	if s != nil {
		s.word.Store(&cachedWord{word: strings.Clone(word), ids: slices.Clone(ids)})
	}
}

package bpe

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

// A wordCache caches the ids of recently merged words: texts repeat words, and merging is most of
// the cost of encoding.
//
// It is a direct-mapped table. Every word has one slot, and a new word evicts the old word of the
// slot. So the cache is bounded and needs no lock, and a hostile text can at most empty it.
type wordCache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cachedWord]
}

// A cachedWord is immutable after it has been stored in a slot.
type cachedWord struct {
	word string
	ids  []uint32
}

func newWordCache() *wordCache { return &wordCache{seed: maphash.MakeSeed()} }

// slot returns the slot of word.
func (c *wordCache) slot(word string) *atomic.Pointer[cachedWord] {
	return &c.slots[maphash.String(c.seed, word)%cacheSlots]
}

// newCachedWord copies word and ids, because word is a part of the caller's text and ids is a part
// of the caller's result.
func newCachedWord(word string, ids []uint32) *cachedWord {
	return &cachedWord{word: strings.Clone(word), ids: slices.Clone(ids)}
}

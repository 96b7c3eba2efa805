package bpe

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

const (
	// cacheSlots bounds the cache: at most this many words, some 3 MB with what they hold.
	cacheSlots = 1 << 14
	// maxCachedWord is the longest word kept, in bytes. Longer ones seldom come twice.
	maxCachedWord = 48
)

// A wordCache remembers the ids of words lately merged: text repeats its words, and merging is most of the cost of
// encoding.
//
// It is a direct-mapped table. Every word has one slot, and a new word evicts whatever sits there, so the cache is never
// full, needs no lock, and a hostile text can do no worse than empty it.
type wordCache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cachedWord]
}

// A cachedWord is never changed once it is in a slot.
type cachedWord struct {
	word string
	ids  []uint32
}

func newWordCache() *wordCache { return &wordCache{seed: maphash.MakeSeed()} }

// slot returns where word is, or would be.
func (c *wordCache) slot(word string) *atomic.Pointer[cachedWord] {
	return &c.slots[maphash.String(c.seed, word)%cacheSlots]
}

// newCachedWord copies both, since word is a part of someone's text and ids of someone's result.
func newCachedWord(word string, ids []uint32) *cachedWord {
	return &cachedWord{word: strings.Clone(word), ids: slices.Clone(ids)}
}

// Package kvblock names the blocks of a prompt's KV cache, so that whoever caches them and whoever looks for them mean the same.
//
// A block's name is a hash of its token ids and of the name of the block before it, and so stands for the whole prefix that
// ends with it. It is XXH64 with seed 0, over the earlier name (8 bytes) and the ids (4 bytes each), little-endian. 64 bits
// and no secret: two prefixes of one name are possible, and cost a wrong guess about a cache, never a wrong answer.
package kvblock

import (
	"encoding/binary"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// stackTokens is how many ids are hashed without allocating.
const stackTokens = 32

// Next names the block of these tokens that follows the block parent; 0 is the parent of a first block, and never a name.
func Next(parent uint64, tokens []uint32) uint64 {
	var few [8 + 4*stackTokens]byte
	b := few[:]
	if len(tokens) > stackTokens {
		b = make([]byte, 8+4*len(tokens))
	}
	binary.LittleEndian.PutUint64(b, parent)
	if len(tokens) > 0 {
		put(b[8:], tokens)
	}
	return max(1, xxhash.Sum64(b[:8+4*len(tokens)]))
}

// put writes ids as they stand in memory, where that is little-endian: one by one they cost as much as their hash.
func put(b []byte, ids []uint32) {
	if littleEndian {
		copy(b, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), 4*len(ids)))
		return
	}
	for i, id := range ids {
		binary.LittleEndian.PutUint32(b[4*i:], id)
	}
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// Chain appends to names those of the blocks that tokens fill, of size tokens each, after the block parent. A rest that fills no
// block has no name.
func Chain(names []uint64, parent uint64, tokens []uint32, size int) []uint64 {
	for ; size > 0 && len(tokens) >= size; tokens = tokens[size:] {
		parent = Next(parent, tokens[:size])
		names = append(names, parent)
	}
	return names
}

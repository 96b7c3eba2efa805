// Package kvblock names the blocks of a prompt's KV cache, so that the caches of engines and the
// router's index use the same names.
//
// A block's name is a hash of its token ids and of the name of the previous block, so the name
// identifies the whole prefix that ends with the block. The hash is XXH64 with seed 0, over the
// previous name (8 bytes) and the ids (4 bytes each), little-endian. Blocks of different LoRA
// adapters have different names, as in vLLM and SGLang, because their chains have different roots.
// The hash has 64 bits and no secret: two prefixes may have the same name, which costs a wrong
// guess about a cache, never a wrong answer.
package kvblock

import (
	"encoding/binary"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// stackTokens is the number of ids that are hashed without an allocation.
const stackTokens = 32

// Root returns the parent of first blocks: 0 for a model, which is never a name, and a hash for a
// LoRA adapter of the model, whose cache has other contents for the same tokens.
func Root(adapter string) uint64 {
	if adapter == "" {
		return 0
	}
	return max(1, xxhash.Sum64String(adapter))
}

// Next returns the name of the block that has tokens and follows the block parent. For a first
// block, parent is a Root.
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

// put copies ids from memory as they are if the machine is little-endian, because copying them one
// by one costs as much as the hash.
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

// Chain appends to names the names of the full blocks of tokens, with size tokens each, after the
// block parent. A rest that does not fill a block has no name.
func Chain(names []uint64, parent uint64, tokens []uint32, size int) []uint64 {
	for ; size > 0 && len(tokens) >= size; tokens = tokens[size:] {
		parent = Next(parent, tokens[:size])
		names = append(names, parent)
	}
	return names
}

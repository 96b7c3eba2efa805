package kvblock_test

import (
	"slices"
	"testing"

	"github.com/whence-dev/whence/pkg/kvblock"
)

func tokens(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i * 7919 % 1500)
	}
	return ids
}

func TestChainNamesPrefixes(t *testing.T) {
	ids := tokens(100)
	chain := kvblock.Chain(nil, 0, ids, 16)
	if len(chain) != 6 {
		t.Fatalf("%d names of 100 tokens in blocks of 16", len(chain))
	}
	if again := kvblock.Chain(nil, chain[2], ids[48:], 16); !slices.Equal(again, chain[3:]) {
		t.Error("a chain in two parts differs from the whole chain")
	}
	for at := range 96 {
		other := slices.Clone(ids)
		other[at]++
		for i, name := range kvblock.Chain(nil, 0, other, 16) {
			if (name == chain[i]) != (i < at/16) {
				t.Errorf("with another token %d, block %d has the name %x; it was %x", at, i, name, chain[i])
			}
		}
	}
}

func TestLongBlocksHaveNames(t *testing.T) {
	ids := tokens(65)
	if a, b := kvblock.Next(1, ids), kvblock.Next(1, ids[:64]); a == b || a == 0 || b == 0 {
		t.Error(a, b)
	}
}

// TestNamesAreStable: services of different versions must agree on the names.
func TestNamesAreStable(t *testing.T) {
	if got := kvblock.Chain(nil, 0, tokens(32), 16); !slices.Equal(got, []uint64{0xfed0ae992e881cd1, 0x203327a67553449b}) {
		t.Errorf("%#x", got)
	}
}

func BenchmarkChain(b *testing.B) {
	ids := tokens(8192)
	names := make([]uint64, 0, 512)
	b.ReportAllocs()
	for b.Loop() {
		names = kvblock.Chain(names[:0], 0, ids, 16)
	}
}

// TestAdaptersHaveBlocksOfTheirOwn: the same tokens have different names under each adapter.
func TestAdaptersHaveBlocksOfTheirOwn(t *testing.T) {
	ids := tokens(48)
	seen := map[uint64]string{}
	for _, adapter := range []string{"", "legal", "medical"} {
		for _, name := range kvblock.Chain(nil, kvblock.Root(adapter), ids, 16) {
			if other, taken := seen[name]; taken {
				t.Errorf("a block of %q has the same name as a block of %q", adapter, other)
			}
			seen[name] = adapter
		}
	}
	if kvblock.Root("") != 0 {
		t.Error("the names of blocks without an adapter have changed")
	}
}

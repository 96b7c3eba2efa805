package tinyllama

import (
	"container/list"
	"slices"

	"github.com/whence-dev/whence/pkg/kvblock"
)

// prefixes cache what sequences have read. It is a tree of blocks: the path from the root to a node
// spells the tokens whose keys and values the node's block holds. A sequence whose known tokens
// begin like a path shares the path's whole blocks, and gets a copy of the block in which it
// departs. That changes no bit of its answer: the keys and values of a position depend only on the
// tokens up to that position.
//
// Blocks that no sequence holds can be evicted at any time. The pool evicts them when it has no
// free block, least recently used first.
type prefixes struct {
	root prefixNode // has no block
	idle list.List  // of the *prefixNodes without holders, next to evict in front

	positions       int      // of all nodes
	removed, stored []uint64 // names of whole blocks, since the last call of changes
}

// A prefixNode is a block of a prefix, and the blocks that followed it.
type prefixNode struct {
	name     uint64   // as in pkg/kvblock; 0 if the block is not whole
	tokens   []uint32 // one per position of block; fewer than BlockTokens if the block is not whole
	block    kvBlock  // read-only
	parent   *prefixNode
	children []*prefixNode // no two begin with the same BlockTokens tokens; only whole blocks have some
	holders  int           // sequences that read it; each of them also holds all parents
	idle     *list.Element
}

// find returns the nodes that hold whole blocks of tokens, and the node that holds the next n
// tokens, or nil.
func (p *prefixes) find(tokens []uint32) (whole []*prefixNode, part *prefixNode, n int) {
	at := &p.root
	for {
		part, n = nil, 0
		for _, c := range at.children {
			if k := commonLength(c.tokens, tokens); k > n {
				part, n = c, k
			}
		}
		if n < BlockTokens {
			return whole, part, n
		}
		whole, at, tokens = append(whole, part), part, tokens[n:]
	}
}

// commonLength returns the length of the common prefix of a and b.
func commonLength(a, b []uint32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// child returns the node below at, or below the root if at is nil, whose block begins with tokens,
// or nil.
func (p *prefixes) child(at *prefixNode, tokens []uint32) *prefixNode {
	if at == nil {
		at = &p.root
	}
	for _, c := range at.children {
		if commonLength(c.tokens, tokens) == len(tokens) {
			return c
		}
	}
	return nil
}

// hold protects n from eviction.
func (p *prefixes) hold(n *prefixNode) {
	n.holders++
	if n.idle != nil {
		p.idle.Remove(n.idle)
		n.idle = nil
	}
}

// release undoes hold.
func (p *prefixes) release(n *prefixNode) {
	n.holders--
	p.touch(n)
}

// releaseAll releases a path, its last node first, so that a parent never comes before its children
// in the order of eviction: an evicted node has no children.
func (p *prefixes) releaseAll(path []*prefixNode) {
	for _, n := range slices.Backward(path) {
		p.release(n)
	}
}

// touch moves n to the end of the order of eviction.
func (p *prefixes) touch(n *prefixNode) {
	switch {
	case n.holders > 0:
	case n.idle == nil:
		n.idle = p.idle.PushBack(n)
	default:
		p.idle.MoveToBack(n.idle)
	}
}

// add caches a block that holds tokens, below at, or below the root if at is nil. It returns the
// node that holds tokens, whose block may be another sequence's, and the blocks that are not
// needed. The caller holds or touches the node.
func (p *prefixes) add(at *prefixNode, tokens []uint32, b kvBlock) (n *prefixNode, spare []kvBlock) {
	if same := p.child(at, tokens); same != nil {
		return same, []kvBlock{b}
	}
	if at == nil {
		at = &p.root
	}
	for _, c := range slices.Clone(at.children) { // blocks of beginnings of tokens are of no more use
		if c.holders == 0 && commonLength(c.tokens, tokens) == len(c.tokens) {
			spare = append(spare, p.drop(c))
		}
	}
	n = &prefixNode{tokens: slices.Clone(tokens), block: b, parent: at}
	if len(tokens) == BlockTokens {
		n.name = kvblock.Next(at.name, tokens)
		p.stored = append(p.stored, n.name)
	}
	at.children = append(at.children, n)
	p.positions += len(tokens)
	return n, spare
}

// evict drops the least recently used node and returns its block.
func (p *prefixes) evict() kvBlock {
	front := p.idle.Front()
	if front == nil {
		panic("kv: a block is taken without room")
	}
	return p.drop(front.Value.(*prefixNode)) //nolint:forcetypeassert // nothing else is in the list
}

// drop removes a node that has no children and no holders.
func (p *prefixes) drop(n *prefixNode) kvBlock {
	p.idle.Remove(n.idle)
	p.positions -= len(n.tokens)
	n.parent.children = slices.DeleteFunc(n.parent.children, func(c *prefixNode) bool { return c == n })
	if n.name != 0 {
		if i := slices.Index(p.stored, n.name); i >= 0 {
			p.stored = slices.Delete(p.stored, i, i+1)
		} else {
			p.removed = append(p.removed, n.name)
		}
	}
	return n.block
}

// changes returns the names of whole blocks that were evicted and stored since its last call.
func (p *prefixes) changes() (removed, stored []uint64) {
	removed, stored = p.removed, p.stored
	p.removed, p.stored = nil, nil
	return removed, stored
}

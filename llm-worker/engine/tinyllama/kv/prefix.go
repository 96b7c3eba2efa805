package kv

import (
	"container/list"
	"slices"
)

// prefixes cache what departed sequences had read. It is a tree of blocks: the path from the root
// to a node spells the tokens whose keys and values the node's block holds. A sequence whose prompt
// begins like a path shares the path's whole blocks, and gets a copy of the block in which it
// departs. That changes no bit of its answer: the keys and values of a position depend only on the
// tokens up to that position.
//
// Blocks that no sequence reads can be evicted at any time. The pool evicts them when it has no
// free block, least recently used first.
type prefixes struct {
	root node      // has no block
	idle list.List // of the *nodes without holders, next to evict in front
}

// A node is a block of a prefix, and the blocks that followed it.
type node struct {
	tokens   []uint32 // one per position of block; a node without children may have fewer
	block    Block    // read-only
	parent   *node
	children []*node // no two begin with the same BlockTokens tokens
	holders  int     // sequences that read it; each of them also holds all parents
	idle     *list.Element
}

// find returns the nodes that hold whole blocks of tokens, and the node that holds the next n
// tokens, or nil.
func (p *prefixes) find(tokens []uint32) (whole []*node, part *node, n int) {
	at := &p.root
	for {
		part, n = nil, 0
		for _, c := range at.children {
			if k := common(c.tokens, tokens); k > n {
				part, n = c, k
			}
		}
		if n < BlockTokens {
			return whole, part, n
		}
		whole, at, tokens = append(whole, part), part, tokens[n:]
	}
}

// common returns the length of the common prefix of a and b.
func common(a, b []uint32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// hold protects n from eviction.
func (p *prefixes) hold(n *node) {
	n.holders++
	if n.idle != nil {
		p.idle.Remove(n.idle)
		n.idle = nil
	}
}

// release undoes hold. A caller that holds a path releases the last node first, so that a parent
// never comes before its children in the order of eviction: an evicted node has no children.
func (p *prefixes) release(n *node) {
	n.holders--
	p.touch(n)
}

// touch moves n to the end of the order of eviction.
func (p *prefixes) touch(n *node) {
	switch {
	case n.holders > 0:
	case n.idle == nil:
		n.idle = p.idle.PushBack(n)
	default:
		p.idle.MoveToBack(n.idle)
	}
}

// add caches blocks that hold tokens, below at, or below the root if at is nil. It returns the
// blocks that are not needed.
func (p *prefixes) add(at *node, tokens []uint32, blocks []Block) (spare []Block) {
	if at == nil {
		at = &p.root
	}
	var way []*node
	for i, b := range blocks {
		part := tokens[min(i*BlockTokens, len(tokens)):min((i+1)*BlockTokens, len(tokens))]
		same := slices.IndexFunc(at.children, func(c *node) bool { return common(c.tokens, part) == len(part) })
		switch {
		case len(part) == 0:
			spare = append(spare, b)
			continue
		case same >= 0: // another sequence has read the same at the same time
			spare = append(spare, b)
		default:
			spare = append(spare, p.dropBeginnings(at, part)...)
			same = len(at.children)
			at.children = append(at.children, &node{tokens: slices.Clone(part), block: b, parent: at})
		}
		at = at.children[same]
		way = append(way, at)
	}
	for _, n := range slices.Backward(way) {
		p.touch(n)
	}
	return spare
}

// dropBeginnings drops the nodes below at that hold only a prefix of tokens.
func (p *prefixes) dropBeginnings(at *node, tokens []uint32) (spare []Block) {
	for _, c := range slices.Clone(at.children) {
		if c.holders == 0 && common(c.tokens, tokens) == len(c.tokens) {
			spare = append(spare, p.drop(c))
		}
	}
	return spare
}

// giveUp evicts the least recently used node and returns its block.
func (p *prefixes) giveUp() Block {
	front := p.idle.Front()
	if front == nil {
		panic("kv: more blocks are taken than reserved")
	}
	return p.drop(front.Value.(*node)) //nolint:forcetypeassert // nothing else is in the list
}

// drop removes a node that has no children and no holders.
func (p *prefixes) drop(n *node) Block {
	p.idle.Remove(n.idle)
	n.parent.children = slices.DeleteFunc(n.parent.children, func(c *node) bool { return c == n })
	return n.block
}

package kv

import (
	"container/list"
	"slices"
)

// prefixes remember what sequences that have left had read: a tree of blocks, in which the way from the root to a node spells
// the tokens whose keys and values its block holds. A sequence whose prompt begins like one of these ways reads the blocks
// that it shares with it, and a copy of the one where it departs. That changes no bit of its answer: keys and values of a
// position depend on the tokens up to there, and on nothing else.
//
// What no sequence reads is memory that can be had back at any time: the pool takes it when it has nothing else, what
// was left alone longest first.
type prefixes struct {
	root node      // no block
	idle list.List // of the *nodes that nobody holds, the one to go first in front
}

// A node is a block of a prefix, and what followed on it.
type node struct {
	tokens   []uint32 // one for each position of block, or fewer in a node without children
	block    Block    // nobody writes to it
	parent   *node
	children []*node // no two begin with the same BlockTokens
	holders  int     // sequences that read it; each holds all parents, too
	idle     *list.Element
}

// find returns the nodes that hold whole blocks of tokens, and the one that holds n of those that follow, or nil.
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

// common returns how many tokens a and b have in common, from the first on.
func common(a, b []uint32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// hold keeps n from being given up.
func (p *prefixes) hold(n *node) {
	n.holders++
	if n.idle != nil {
		p.idle.Remove(n.idle)
		n.idle = nil
	}
}

// release undoes hold. Who holds nodes that follow on each other releases the last one first, so that nobody is in front of
// those that follow on it: what is given up has no children.
func (p *prefixes) release(n *node) {
	n.holders--
	p.touch(n)
}

// touch puts n behind all that are to go before it.
func (p *prefixes) touch(n *node) {
	switch {
	case n.holders > 0:
	case n.idle == nil:
		n.idle = p.idle.PushBack(n)
	default:
		p.idle.MoveToBack(n.idle)
	}
}

// add remembers blocks that hold tokens and follow on at, or on the root if that is nil. It returns those that are not needed.
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
		case same >= 0: // read by another sequence at the same time
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

// dropBeginnings forgets the nodes below at that hold no more than the beginning of tokens.
func (p *prefixes) dropBeginnings(at *node, tokens []uint32) (spare []Block) {
	for _, c := range slices.Clone(at.children) {
		if c.holders == 0 && common(c.tokens, tokens) == len(c.tokens) {
			spare = append(spare, p.drop(c))
		}
	}
	return spare
}

// giveUp forgets the node that was left alone longest, and returns its block.
func (p *prefixes) giveUp() Block {
	front := p.idle.Front()
	if front == nil {
		panic("kv: more blocks are taken than reserved")
	}
	return p.drop(front.Value.(*node)) //nolint:forcetypeassert // nothing else is in the list
}

// drop forgets a node that has no children and no holders.
func (p *prefixes) drop(n *node) Block {
	p.idle.Remove(n.idle)
	n.parent.children = slices.DeleteFunc(n.parent.children, func(c *node) bool { return c == n })
	return n.block
}

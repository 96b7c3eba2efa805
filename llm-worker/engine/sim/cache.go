package sim

// A cache is a KV cache of blocks that finds known prefixes. A block that no sequence uses stays
// until its place is needed. Blocks are evicted in the order of their last use, and the last block
// of a sequence before the earlier ones. A sequence reserves all the blocks that it may need when
// it joins, so taking a block cannot fail.
//
//	total = blocks in use + idle blocks + empty places, and reserved <= idle blocks + empty places
type cache struct {
	total    int
	used     int               // blocks that a sequence uses
	reserved int               // reserved places for the future blocks of sequences
	opened   int               // reserved places that are being written
	blocks   map[uint64]*block // by name
	idle     block             // head of the ring of unused blocks, least recently used first

	// The changes since the last report.
	removed, stored []uint64
}

// A block has a name once all its tokens are read. Until then it is a reserved place.
type block struct {
	name       uint64
	users      int
	prev, next *block // in the ring of idle blocks
}

func newCache(total int) *cache {
	c := &cache{total: total, blocks: make(map[uint64]*block)}
	c.idle.prev, c.idle.next = &c.idle, &c.idle
	return c
}

// find returns the blocks of the longest cached prefix.
func (c *cache) find(names []uint64) (held []*block) {
	for _, name := range names {
		b := c.blocks[name]
		if b == nil {
			break
		}
		held = append(held, b)
	}
	return held
}

// reserve makes a sequence a user of held, and reserves places for more blocks. It reports false if
// there is no room now.
func (c *cache) reserve(held []*block, more int) bool {
	woken := 0
	for _, b := range held {
		if b.users == 0 {
			woken++
		}
	}
	if c.used+c.reserved+woken+more > c.total {
		return false
	}
	for _, b := range held {
		c.use(b)
	}
	c.reserved += more
	return true
}

func (c *cache) use(b *block) {
	if b.users == 0 {
		if b.next != nil {
			b.prev.next, b.next.prev = b.next, b.prev
			b.prev, b.next = nil, nil
		}
		c.used++
	}
	b.users++
}

// open begins to write into a reserved place.
func (c *cache) open() {
	c.opened++
	if len(c.blocks)+c.opened > c.total {
		// There is an idle block, because used and reserved blocks fit into total.
		c.evict()
	}
}

// fill turns an open place into the block name, or gives the place back if another sequence has
// stored that block first.
func (c *cache) fill(name uint64) *block {
	c.opened--
	c.reserved--
	b := c.blocks[name]
	if b == nil {
		b = &block{name: name}
		c.blocks[name] = b
		c.stored = append(c.stored, name)
	}
	c.use(b)
	return b
}

// evict removes the least recently used block.
func (c *cache) evict() {
	b := c.idle.next
	b.prev.next, b.next.prev = b.next, b.prev
	delete(c.blocks, b.name)
	c.removed = append(c.removed, b.name)
}

// release returns the blocks and the reserved places of a sequence. opened of the places are being
// written.
func (c *cache) release(blocks []*block, reserved, opened int) {
	c.reserved -= reserved
	c.opened -= opened
	for i := len(blocks) - 1; i >= 0; i-- {
		b := blocks[i]
		if b.users--; b.users == 0 {
			c.used--
			last := c.idle.prev
			b.prev, b.next = last, &c.idle
			last.next, c.idle.prev = b, b
		}
	}
}

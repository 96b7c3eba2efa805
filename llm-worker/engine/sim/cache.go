package sim

// A cache is a KV cache of blocks whose prefixes are found again. A block that no sequence uses stays until its place is needed; the
// one that was used longest ago goes first, and of a sequence's blocks the last. A sequence reserves all the blocks that it can
// come to need when it joins, so that taking one cannot fail.
//
//	total = blocks that sequences use + idle blocks + empty places, and reserved <= idle blocks + empty places
type cache struct {
	total    int
	used     int               // blocks that a sequence uses
	reserved int               // places for blocks that sequences will come to use
	opened   int               // of these, places that are being written
	blocks   map[uint64]*block // by name
	idle     block             // head of the ring of those that nobody uses, from the one used longest ago on

	// What has changed since it was last told.
	removed, stored []uint64
}

// A block has a name, since all its tokens are read. Until then it was a reserved place.
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

// find returns the blocks of the longest prefix that is held.
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

// reserve makes a sequence a user of held, and reserves places for so many blocks more. It is false if they are not to be had now.
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
	if len(c.blocks)+c.opened > c.total { // then a block is idle, as those that are used and reserved fit into total
		c.evict()
	}
}

// fill turns an opened place into the block of that name, or gives it back if another sequence was faster.
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

// evict gives up the block that was used longest ago.
func (c *cache) evict() {
	b := c.idle.next
	b.prev.next, b.next.prev = b.next, b.prev
	delete(c.blocks, b.name)
	c.removed = append(c.removed, b.name)
}

// release ends a sequence's use of blocks and of reserved places, of which so many are open.
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

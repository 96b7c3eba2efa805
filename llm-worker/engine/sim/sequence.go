package sim

import (
	"time"

	"github.com/whence-dev/whence/pkg/kvblock"
)

// A sequence is a prompt and what has been answered to it.
type sequence struct {
	// Static.
	prompt []uint32 // all that was known when it joined: an answer that was begun elsewhere, too
	names  []uint64 // of the blocks that the prompt fills
	cached uint32   // tokens of the prompt that the cache held when it joined

	handsOver bool      // it ends when the prompt is read
	fetched   int       // positions that another worker has read; 0 if none has
	arrives   time.Time // when these are here

	blocks   []*block // full ones, in order
	reserved int      // places for those to come, the open one included
	opened   int      // 1 while a block is being written
	read     int      // positions whose keys and values are in the cache
	tail     []uint32 // of the answer, the tokens in the block that is being written
	last     uint32   // the token that was chosen last
	made     int      // tokens that were chosen here
	answer   answer
	fault    fault
}

// fetch has what is not held of the prompt come from the worker that has read it. The last token is always read here, for what comes
// after it.
func (s *sequence) fetch(o *Options) {
	s.fetched = len(s.prompt) - 1
	s.arrives = time.Now().Add(o.scaled(o.Transfer + time.Duration(max(0, s.fetched-s.read))*o.TransferToken))
	s.cached = uint32(max(s.read, s.fetched))
}

// advance reads n tokens: of the prompt, or the one that was chosen last.
func (s *sequence) advance(c *cache, size, n int) {
	for ; n > 0; n-- {
		if s.read%size == 0 {
			c.open()
			s.opened = 1
		}
		if s.read >= len(s.prompt) {
			s.tail = append(s.tail, s.last)
		}
		if s.read++; s.read%size == 0 {
			s.blocks = append(s.blocks, c.fill(s.name(size)))
			s.reserved--
			s.opened = 0
			s.tail = s.tail[:0]
		}
	}
}

// name returns that of the block whose last token has been read.
func (s *sequence) name(size int) uint64 {
	nth := len(s.blocks)
	if nth < len(s.names) {
		return s.names[nth]
	}
	parent := uint64(0)
	if nth > 0 {
		parent = s.blocks[nth-1].name
	}
	if begins := nth * size; begins < len(s.prompt) { // part prompt, part answer
		return kvblock.Next(parent, append(s.prompt[begins:len(s.prompt):len(s.prompt)], s.tail...))
	}
	return kvblock.Next(parent, s.tail)
}

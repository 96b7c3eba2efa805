package sim

import (
	"time"

	"github.com/whence-dev/whence/pkg/kvblock"
)

// A sequence is a prompt and the answer to it.
type sequence struct {
	// Static.
	prompt []uint32 // all tokens at the time it joined, including an answer that another worker began
	names  []uint64 // names of the blocks that the prompt fills
	cached uint32   // prompt tokens found in the cache when it joined

	handsOver bool      // a prefill: it ends when the prompt is read
	fetched   int       // positions that another worker has read; 0 for none
	arrives   time.Time // when the fetched positions arrive

	blocks   []*block // full blocks, in order
	reserved int      // reserved places for further blocks, including the open one
	opened   int      // 1 while a block is being written
	read     int      // positions with keys and values in the cache
	tail     []uint32 // the answer's tokens in the open block
	last     uint32   // the token chosen last
	made     int      // tokens chosen by this worker
	answer   answer
	fault    fault
}

// fetch schedules the transfer of the prompt's positions that are not cached, from the worker that
// has prefilled the prompt. The last token is always read here, because the next token depends on
// it.
func (s *sequence) fetch(o *Options) {
	s.fetched = len(s.prompt) - 1
	s.arrives = time.Now().Add(o.scaled(o.Transfer + time.Duration(max(0, s.fetched-s.read))*o.TransferToken))
	s.cached = uint32(max(s.read, s.fetched))
}

// advance reads n tokens: of the prompt, or the token that was chosen last.
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

// name returns the name of the block whose last token has just been read.
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

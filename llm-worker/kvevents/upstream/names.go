package upstream

import (
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// maxKnown bounds the known blocks of an engine: some sixty million tokens, more than the GPUs of
// one engine hold. Above it all blocks are forgotten.
const maxKnown = 4 << 20

// A DropReason is the reason why a stored block gets no name.
type DropReason string

// The reasons for dropping a block.
const (
	// UnknownParent: the block follows a block that was not named, such as one stored before the
	// listener subscribed.
	UnknownParent DropReason = "unknown_parent"
	// NotPlainText: the block is not in the GPU's memory, or depends on more than token ids
	// and a named adapter.
	NotPlainText DropReason = "not_plain_text"
	// OtherGroup: the block is in the cache of layers other than those that the names are of, as a
	// hybrid model has.
	OtherGroup DropReason = "other_group"
	// Malformed: the event's tokens do not make up its blocks.
	Malformed DropReason = "malformed"
)

// names maps an engine's block hashes to our block names, which are computed from tokens, and
// reports them to a hub.
type names struct {
	held  *kvevents.Hub
	known map[uint64]uint64 // our names by the engine's hashes
	size  int               // tokens per block, as of the last stored block
	most  int               // bound of known
	group int               // the group of layers that the names are of
	found bool              // the engine has reported the layers of group
	drop  func(reason DropReason, blocks int)
}

// apply applies an event. A block whose parent is unknown cannot be named, and is dropped until it
// is stored again.
func (n *names) apply(e *event) {
	switch {
	case e.kind == allCleared:
		n.clear()
	case e.foreign && e.kind == blockStored:
		n.drop(NotPlainText, len(e.hashes))
	case e.foreign:
	case e.kind == blockStored && !n.follows(e):
		n.drop(OtherGroup, len(e.hashes))
	case e.group != n.group: // it still is in the group of the names
	case e.kind == blockStored:
		n.store(e)
	case e.kind == blockRemoved:
		var removed []uint64
		for _, h := range e.hashes {
			if name, ok := n.known[h]; ok {
				delete(n.known, h)
				removed = append(removed, name)
			}
		}
		n.held.Publish(removed, nil)
	}
}

// wholePrompt has the kinds of layers that keep every block of a prompt. The others of vLLM's kinds keep a
// window of it, or a state, so their cache says less about how much of a prompt is cached.
var wholePrompt = map[string]bool{"full_attention": true, "mla_attention": true, "sink_full_attention": true}

// follows reports whether a stored block is of the group that the names are of: the first group that is
// found to keep whole prompts, otherwise group 0. All groups of a prompt have the same hashes, and lose
// their blocks at different times.
func (n *names) follows(e *event) bool {
	if !n.found && wholePrompt[e.layers] {
		if n.found = true; e.group != n.group {
			n.clear() // names of another group
		}
		n.group = e.group
	}
	return e.group == n.group
}

// reset forgets the group that is followed: the next events may be of another engine.
func (n *names) reset() {
	if n.group != 0 {
		n.clear()
	}
	n.group, n.found = 0, false
}

func (n *names) store(e *event) {
	size := e.blockSize()
	if size == 0 {
		n.drop(Malformed, len(e.hashes))
		return
	}
	parent, root, ok := n.parent(e)
	if full := len(n.known)+len(e.hashes) > n.most; ok && full {
		n.clear()
		ok = root // clear has dropped every other parent
	}
	if !ok {
		n.drop(UnknownParent, len(e.hashes))
		return
	}
	n.size = size
	stored := make([]uint64, len(e.hashes))
	for i, h := range e.hashes {
		parent = kvblock.Next(parent, e.tokens[i*size:(i+1)*size])
		n.known[h], stored[i] = parent, parent
	}
	n.held.Publish(nil, stored)
}

// parent returns our name of the block before the first block of e; ok is false if it is unknown.
// root reports that the first block begins a prompt: vLLM and SGLang then send no parent, llm-d's
// publishers send 0. A block whose hash happens to be 0 is a parent like any other.
func (n *names) parent(e *event) (name uint64, root, ok bool) {
	if e.parent == nil {
		return kvblock.Root(e.adapter), true, true
	}
	if name, ok = n.known[*e.parent]; ok {
		return name, false, true
	}
	root = *e.parent == 0
	return kvblock.Root(e.adapter), root, root
}

func (n *names) clear() {
	clear(n.known)
	n.held.Clear()
}

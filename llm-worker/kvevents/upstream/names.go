package upstream

import (
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// maxKnown is how many blocks of an engine are known at most: some sixty million tokens, more than GPUs of one engine hold. Past it
// everything is forgotten.
const maxKnown = 4 << 20

// names turns an engine's blocks into ours, which are named by their tokens, and tells a hub.
type names struct {
	held  *kvevents.Hub
	known map[uint64]uint64 // our names by the engine's hashes
	size  int               // of the last block stored
	most  int               // of known
}

// apply notes an event. A block whose parent is not known cannot be named, and is left out until it is stored again.
func (n *names) apply(e *event) {
	switch {
	case e.kind == allCleared:
		n.clear()
	case e.foreign:
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

func (n *names) store(e *event) {
	if e.size <= 0 || len(e.tokens)/e.size != len(e.hashes) || len(e.tokens)%e.size != 0 {
		return
	}
	parent := uint64(0)
	if e.parent != nil {
		var ok bool
		if parent, ok = n.known[*e.parent]; !ok {
			return
		}
	}
	if len(n.known)+len(e.hashes) > n.most {
		n.clear()
		if e.parent != nil {
			return
		}
	}
	n.size = e.size
	stored := make([]uint64, len(e.hashes))
	for i, h := range e.hashes {
		parent = kvblock.Next(parent, e.tokens[i*e.size:(i+1)*e.size])
		n.known[h], stored[i] = parent, parent
	}
	n.held.Publish(nil, stored)
}

func (n *names) clear() {
	clear(n.known)
	n.held.Clear()
}

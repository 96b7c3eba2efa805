package tinyllama

import (
	"fmt"
	"slices"
)

// schedule fills m.jobs, and takes the blocks that the jobs need. Paused sequences get no job.
func (m *Model) schedule(ids []uint64) error {
	m.jobs = m.jobs[:0]
	chunk := m.options.PrefillChunk
	if chunk <= 0 {
		chunk = m.pace.Chunk(slices.ContainsFunc(ids, func(id uint64) bool {
			s := m.sequences[id]
			return s != nil && s.memory != nil && s.read >= len(s.prompt)
		}))
	}
	for _, id := range ids {
		s := m.sequences[id]
		if s == nil || s.finished {
			return fmt.Errorf("sequence %d has not joined or has finished", id)
		}
		if s.memory == nil {
			continue
		}
		m.adopt(s)
		tokens := 1
		if rest := s.length() - s.read; rest > 1 || len(s.answer) == 0 {
			tokens = min(rest, chunk)
			chunk -= tokens
		}
		if tokens > 0 && m.grow(s, s.read+tokens) {
			m.jobs = append(m.jobs, job{id: id, sequence: s, tokens: tokens})
		}
	}
	return nil
}

// adopt skips the blocks that other sequences have read since s joined, so that sequences that join
// together read a common prefix once.
func (m *Model) adopt(s *sequence) {
	if m.private(s) {
		return
	}
	for s.read == s.memory.Shared()*BlockTokens && s.read+BlockTokens < s.length() {
		m.part = s.appendTokens(m.part[:0], s.read, s.read+BlockTokens)
		if !m.pool.Adopt(s.memory, m.part) {
			return
		}
		s.read += BlockTokens
		if !s.resumed {
			s.cached += BlockTokens
		}
	}
}

// share lets other sequences use the blocks that s has filled.
func (m *Model) share(s *sequence) {
	if m.private(s) {
		return
	}
	for first := s.memory.Shared() * BlockTokens; first+BlockTokens <= s.read; first += BlockTokens {
		m.part = s.appendTokens(m.part[:0], first, first+BlockTokens)
		m.pool.Share(s.memory, m.part)
	}
}

// private reports whether a sequence must not use or fill the prefix cache. The cache has keys
// and values, but not the hidden states that the mean of a text and the scores of a prompt need.
func (m *Model) private(s *sequence) bool {
	return m.options.NoPrefixCache || s.embeds() || s.scored != nil
}

// grow makes room for a number of positions of s. As long as there is none, it pauses the sequence
// that joined last, so that the oldest one always advances. It reports false if that was s itself.
func (m *Model) grow(s *sequence, positions int) bool {
	for !m.pool.Grow(s.memory, positions) {
		last := s
		for _, other := range m.sequences {
			if other.memory != nil && !other.finished && other.order > last.order {
				last = other
			}
		}
		if m.pause(last); last == s {
			return false
		}
	}
	return true
}

// pause takes the memory of a sequence away. The sequence continues with the same tokens when
// resume has given it memory again: it reads those of its known tokens that are no longer cached once
// more, and its sampler has not changed.
func (m *Model) pause(s *sequence) {
	m.jobs = slices.DeleteFunc(m.jobs, func(j job) bool { return j.sequence == s })
	m.release(s)
	s.memory, s.read, s.resumed = nil, 0, true
	m.paused = slices.Insert(m.paused, 0, s) // all other paused sequences joined later
}

// resume gives paused sequences memory, the oldest first, as long as there is room. Until all of
// them have resumed, no other sequence joins.
func (m *Model) resume() {
	for len(m.paused) > 0 && m.enter(m.paused[0]) {
		m.paused = slices.Delete(m.paused, 0, 1)
	}
}

// enter gives a sequence the memory of its known tokens. It reports false if that would leave the
// others no room to grow: one block for each of them, for otherwise one of them would soon be
// paused.
func (m *Model) enter(s *sequence) bool {
	others := 0
	for _, other := range m.sequences {
		if other.memory != nil && !other.finished {
			others++
		}
	}
	var known []uint32
	if !m.private(s) {
		known = s.known()
	}
	memory, ok := m.pool.Join(s.length(), known, others)
	if ok {
		s.memory, s.read = memory, memory.Cached
	}
	return ok
}

// release returns the memory of a sequence to the pool, which caches what the sequence has read.
func (m *Model) release(s *sequence) {
	var read []uint32
	if !m.private(s) {
		read = s.known()[:s.read]
	}
	m.pool.Leave(s.memory, read)
}

// report publishes the changes of the cache.
func (m *Model) report() {
	m.cached.Store(uint64(m.pool.Cached()))
	if removed, stored := m.pool.Changes(); m.options.Held != nil {
		m.options.Held.Publish(removed, stored)
	}
}

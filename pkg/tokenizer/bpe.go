package tokenizer

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// noToken is not an id of any token.
const noToken = ^uint32(0)

// bpeOptions are the parts of a bpe.
type bpeOptions struct {
	Vocab  map[string]uint32 // retained, not copied
	Merges [][2]string       // pairs of tokens, lowest rank first
	// Ranks has the rank of every token, by id, in models that list no merges: two neighbours are
	// joined if the result is a token, lowest rank first. The tokens with rank noToken take no
	// part.
	Ranks []uint32

	ByteLevel    bool   // the vocabulary spells bytes (see spellBytes)
	IgnoreMerges bool   // a word that is a token is that token
	ByteFallback bool   // an unknown character becomes the tokens <0x00> to <0xFF> of its bytes, if all of them exist
	Unk          string // the token of any other unknown character; if "", such a character is dropped
	FuseUnk      bool   // neighbouring unknown characters become one Unk
}

// A bpe is a vocabulary and the order of merges. It is safe for concurrent use.
//
// Words are bytes for byte-level models, otherwise valid UTF-8. Ids are the vocabulary's. Encoding
// a word of n bytes takes O(n log n) time for any word. The order of merges, and the treatment of
// unknown characters, equal those of the Rust library "tokenizers" 0.22.
type bpe struct {
	// Static.

	// ids maps a token's bytes (byte-level) or text to its id.
	ids map[string]uint32
	// unread has the tokens of a byte-level vocabulary that represent no bytes; no word can contain
	// them.
	unread map[string]uint32

	byteLevel bool
	alphabet  [256]uint32 // byte-level: the token of each byte, or noToken
	fallback  [256]uint32 // byte fallback: the token <0xNN> of each byte, or noToken

	merges       map[uint64]bpeMerge // by pair
	ignoreMerges bool
	byteFallback bool
	fuseUnk      bool
	unk          uint32 // or noToken

	cache *wordCache // safe for concurrent use
}

// A bpeMerge is the result of joining a pair of neighbouring symbols. Lower ranks are merged first.
type bpeMerge struct{ rank, id uint32 }

func pair(left, right uint32) uint64 { return uint64(left)<<32 | uint64(right) }

// newBPE returns the model, or an error that names the token missing from the vocabulary.
func newBPE(o bpeOptions) (*bpe, error) {
	m := &bpe{
		ids:          o.Vocab,
		byteLevel:    o.ByteLevel,
		ignoreMerges: o.IgnoreMerges,
		byteFallback: o.ByteFallback,
		fuseUnk:      o.FuseUnk,
		unk:          noToken,
		merges:       make(map[uint64]bpeMerge, len(o.Merges)),
		cache:        newWordCache(),
	}
	if o.Unk != "" {
		id, ok := o.Vocab[o.Unk]
		if !ok {
			return nil, fmt.Errorf("unk_token %q is not in the vocabulary", o.Unk)
		}
		m.unk = id
	}
	var joined []byte
	for rank, tokens := range o.Merges {
		left, okLeft := o.Vocab[tokens[0]]
		right, okRight := o.Vocab[tokens[1]]
		joined = append(append(joined[:0], tokens[0]...), tokens[1]...)
		id, okBoth := o.Vocab[string(joined)] // not a copy
		switch {
		case !okLeft:
			return nil, fmt.Errorf("merge %d: token %q is not in the vocabulary", rank, tokens[0])
		case !okRight:
			return nil, fmt.Errorf("merge %d: token %q is not in the vocabulary", rank, tokens[1])
		case !okBoth:
			return nil, fmt.Errorf("merge %d: token %q is not in the vocabulary", rank, joined)
		}
		m.merges[pair(left, right)] = bpeMerge{rank: uint32(rank), id: id} // the last of equal pairs wins
	}
	if o.ByteLevel {
		m.readVocab(o.Vocab)
	}
	if o.Ranks != nil {
		if err := m.rank(o.Ranks); err != nil {
			return nil, err
		}
	}
	for b := range m.fallback {
		m.fallback[b] = noToken
		if id, ok := o.Vocab[fmt.Sprintf("<0x%02X>", b)]; ok {
			m.fallback[b] = id
		}
	}
	return m, nil
}

// maxPairs bounds the bytes of the pairs that rank looks up. The largest vocabularies of today need
// a tenth.
const maxPairs = 1 << 28

// rank makes a merge of every pair of tokens whose join is a token.
func (m *bpe) rank(ranks []uint32) error {
	work := 0
	for token, id := range m.ids {
		if ranks[id] == noToken {
			continue
		}
		if work += len(token) * len(token); work > maxPairs {
			return errors.New("the tokens of the vocabulary are too long")
		}
		for i := 1; i < len(token); i++ {
			left, ok := m.ids[token[:i]]
			if !ok || ranks[left] == noToken {
				continue
			}
			if right, ok := m.ids[token[i:]]; ok && ranks[right] != noToken {
				m.merges[pair(left, right)] = bpeMerge{rank: ranks[id], id: id}
			}
		}
	}
	return nil
}

// readVocab indexes the vocabulary by the bytes of its tokens.
func (m *bpe) readVocab(vocab map[string]uint32) {
	m.ids = make(map[string]uint32, len(vocab))
	m.unread = make(map[string]uint32)
	for b := range m.alphabet {
		m.alphabet[b] = noToken
	}
	var buf []byte
	for token, id := range vocab {
		raw, ok := readBytes(buf[:0], token)
		if !ok {
			m.unread[token] = id
			continue
		}
		m.ids[string(raw)] = id
		if len(raw) == 1 {
			m.alphabet[raw[0]] = id
		}
		buf = raw
	}
}

// ID returns the id of the token that the vocabulary writes as token.
func (m *bpe) ID(token string) (uint32, bool) {
	if !m.byteLevel {
		id, ok := m.ids[token]
		return id, ok
	}
	if raw, ok := readBytes(nil, token); ok {
		id, ok := m.ids[string(raw)]
		return id, ok
	}
	id, ok := m.unread[token]
	return id, ok
}

// Encode appends the ids of word.
func (m *bpe) Encode(ids []uint32, word string, mg *bpeMerger) []uint32 {
	if word == "" {
		return ids
	}
	if m.ignoreMerges {
		if id, ok := m.ids[word]; ok {
			return append(ids, id)
		}
	}
	slot := m.cache.Slot(word)
	if known, ok := slot.Find(word); ok {
		return append(ids, known...)
	}
	n := len(ids)
	ids = m.merge(ids, word, mg)
	slot.Store(word, ids[n:])
	return ids
}

func (m *bpe) merge(ids []uint32, word string, mg *bpeMerger) []uint32 {
	mg.reset()
	if m.byteLevel {
		m.pushBytes(mg, word)
	} else {
		m.pushChars(mg, word)
	}
	return mg.merge(ids, m.merges)
}

// pushBytes pushes the symbols of a byte-level word. Vocabularies without a token for every byte
// are rare.
func (m *bpe) pushBytes(mg *bpeMerger, word string) {
	u := unknownRun{model: m, mg: mg}
	for i := range len(word) {
		if id := m.alphabet[word[i]]; id != noToken {
			u.end()
			mg.push(id)
		} else {
			u.add(spellBytes(word[i : i+1]))
		}
	}
	u.end()
}

func (m *bpe) pushChars(mg *bpeMerger, word string) {
	u := unknownRun{model: m, mg: mg}
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		char := word[i : i+n]
		if id, ok := m.ids[char]; ok {
			u.end()
			mg.push(id)
		} else {
			u.add(char)
		}
		i += n
	}
	u.end()
}

// An unknownRun pushes the symbols for unknown characters.
type unknownRun struct {
	model *bpe
	mg    *bpeMerger
	// pending reports that an unk has not been pushed yet. Like the Rust library, this type pushes
	// it only when a known character follows, after the byte tokens of unknown characters in
	// between.
	pending bool
}

func (u *unknownRun) add(char string) {
	if u.model.byteFallback && u.addBytes(char) {
		return
	}
	if u.model.unk == noToken {
		return
	}
	if !u.model.fuseUnk {
		u.end()
	}
	u.pending = true
}

func (u *unknownRun) addBytes(char string) bool {
	for i := range len(char) {
		if u.model.fallback[char[i]] == noToken {
			return false
		}
	}
	for i := range len(char) {
		u.mg.push(u.model.fallback[char[i]])
	}
	return true
}

func (u *unknownRun) end() {
	if u.pending {
		u.mg.push(u.model.unk)
		u.pending = false
	}
}

package tokenizer

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// A charsmap is the normalization of a SentencePiece model: a double-array trie maps texts to
// positions in the list of replacements. A zero byte ends each replacement.
type charsmap struct {
	units        []uint32
	replacements string
}

var errCharsmap = errors.New("the normalization (precompiled_charsmap) is damaged")

func readCharsmap(data []byte) (*charsmap, error) {
	if len(data) < 4 {
		return nil, errCharsmap
	}
	size := binary.LittleEndian.Uint32(data)
	if data = data[4:]; uint64(size) > uint64(len(data)) || size%4 != 0 || size == 0 {
		return nil, errCharsmap
	}
	c := &charsmap{units: make([]uint32, size/4), replacements: string(data[size:])}
	for _, text := range strings.Split(c.replacements, "\x00") {
		if len(text) > maxLiteral {
			return nil, errCharsmap
		}
	}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	return c, nil
}

// longest returns the replacement of the longest text of the trie with which s begins. n is the length
// of that text, or 0.
func (c *charsmap) longest(s string) (replacement string, n int) {
	offset := func(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
	at := offset(c.units[0])
	for i := range min(len(s), maxLiteral) {
		at ^= uint32(s[i])
		if uint64(at) >= uint64(len(c.units)) || c.units[at]&(1<<31|0xFF) != uint32(s[i]) {
			break
		}
		unit := c.units[at]
		at ^= offset(unit)
		if unit>>8&1 == 0 || uint64(at) >= uint64(len(c.units)) {
			continue
		}
		value := c.units[at] &^ (1 << 31)
		if uint64(value) >= uint64(len(c.replacements)) {
			continue
		}
		replacement, _, _ = strings.Cut(c.replacements[value:], "\x00")
		n = i + 1
	}
	return replacement, n
}

// shortest returns the replacement of the shortest text of the trie with which s begins.
func (c *charsmap) shortest(s string) (replacement string, ok bool) {
	for n := range min(len(s), maxLiteral) {
		if replacement, size := c.longest(s[:n+1]); size > 0 {
			return replacement, true
		}
	}
	return "", false
}

// maxCluster is the length in bytes from which on a grapheme cluster is normalized by characters.
const maxCluster = 6

// newPrecompiled returns the normalizer Precompiled, which is the normalization of a SentencePiece model
// as the Rust library has it: a grapheme cluster, or else each of its characters, is replaced by the
// replacement of the shortest text with which it begins.
func newPrecompiled(c *component) (normalizer, error) {
	var opt struct {
		Charsmap []byte `json:"precompiled_charsmap"`
	}
	if err := c.options(&opt); err != nil {
		return nil, err
	}
	m, err := readCharsmap(opt.Charsmap)
	if err != nil {
		return nil, c.fail(err)
	}
	if !utf8.ValidString(m.replacements) {
		return nil, c.fail(errCharsmap)
	}
	return func(p piece) (piece, error) {
		text, err := m.clusters(p.text)
		return piece{text, p.first}, err
	}, nil
}

// clusters replaces the grapheme clusters of s.
func (c *charsmap) clusters(s string) (string, error) {
	var out strings.Builder
	out.Grow(len(s))
	for s != "" {
		if out.Len() > maxText {
			return "", errLong
		}
		n := pattern.Cluster(s)
		cluster := s[:n]
		s = s[n:]
		if n < maxCluster {
			if replacement, ok := c.shortest(cluster); ok {
				out.WriteString(replacement)
				continue
			}
		}
		for _, r := range cluster {
			char := string(r)
			if replacement, ok := c.shortest(char); ok {
				char = replacement
			}
			out.WriteString(char)
		}
	}
	return out.String(), nil
}

// A spmNormalizer rewrites a text as a SentencePiece model does.
type spmNormalizer struct {
	*spmModel
	charsmap *charsmap // nil if no characters change
	users    *addedMatcher
	// legacy says that every text between two added tokens begins with a space, as in SentencePiece;
	// otherwise only the first does, unless it already begins with one.
	legacy bool
}

const space = "▁" // a visible space

func (n *spmNormalizer) normalize(p piece) (piece, error) {
	var out strings.Builder
	out.Grow(len(p.text) + len(p.text)/4 + len(space))
	blank := n.trim // the last character is a space, and more are dropped
	prefix := n.dummyPrefix && (n.legacy || p.first && !strings.HasPrefix(p.text, " ") && !strings.HasPrefix(p.text, space))
	for rest := p.text; rest != ""; {
		if out.Len() > maxText {
			return p, errLong
		}
		part, size := n.next(rest)
		rest = rest[size:]
		if n.trim && blank {
			part = strings.TrimLeft(part, " ")
		}
		if part == "" {
			continue
		}
		if prefix {
			out.WriteString(space)
			prefix = false
		}
		blank = strings.HasSuffix(part, " ")
		out.WriteString(strings.ReplaceAll(part, " ", space))
	}
	p.text = out.String()
	for n.trim && strings.HasSuffix(p.text, space) {
		p.text = strings.TrimSuffix(p.text, space)
	}
	return p, nil
}

// next returns the normalization of the beginning of s, and the length of that beginning.
func (n *spmNormalizer) next(s string) (part string, size int) {
	if end := n.users.longest(s); end > 0 {
		return s[:end], end
	}
	if n.charsmap != nil {
		if part, size := n.charsmap.longest(s); size > 0 {
			return part, size
		}
	}
	if n.charsmap == nil && len(n.users.tokens) == 0 && !n.trim {
		return s, len(s)
	}
	_, size = utf8.DecodeRuneInString(s)
	return s[:size], size
}

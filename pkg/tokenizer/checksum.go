package tokenizer

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// checksumMethod is the prefix of a checksum. It changes when the input of the checksum changes, so
// that old and new checksums differ.
const checksumMethod = "1:"

// Checksum returns a checksum of a tokenizer.json: two files have the same checksum if they convert
// every text to the same token ids, and every id to the same text. It covers the vocabulary, the
// merges in their order, the added tokens with their matching options, the normalizer, the
// pre-tokenizer, the decoder, and the model's options. It omits everything else: the file's format
// (merges may be pairs or strings), its version, truncation, padding, and the post-processor, whose
// tokens chat templates write themselves.
func Checksum(data []byte) (string, error) {
	s, err := newSource(data)
	if err != nil {
		return "", err
	}
	return s.Checksum()
}

// Checksum returns the checksum of the tokenizer. Files of different formats have different
// checksums, even if they have the same tokens.
func (s *Source) Checksum() (string, error) {
	f := s.file
	if f.Model == nil {
		return "", fmt.Errorf("%s: no model", s.name)
	}
	sum := sha256.New()
	d := digest{bufio.NewWriter(sum)} // most writes are a few bytes long
	d.vocabulary(f.Model.Vocab.ids)
	d.number(uint64(len(f.Model.Merges)))
	for _, m := range f.Model.Merges {
		d.text(m[0])
		d.text(m[1])
	}
	if err := d.added(f); err != nil {
		return "", fmt.Errorf("%s: %w", s.name, err)
	}
	for _, c := range []*component{f.Normalizer, f.PreTokenizer, f.Decoder} {
		if err := d.component(c); err != nil {
			return "", err
		}
	}
	m := f.Model
	d.text(m.UnkToken)
	d.text(m.SubwordPrefix)
	d.text(m.WordSuffix)
	d.flags(m.FuseUnk, m.ByteFallback, m.IgnoreMerges)
	if f.conversion != nil {
		d.text(f.conversion.pattern)
		for _, rank := range m.ranks {
			d.number(uint64(rank))
		}
	}
	_ = d.Flush() // a hash never fails
	return checksumMethod + hex.EncodeToString(sum.Sum(nil)), nil
}

// A digest hashes values unambiguously: the length of a text precedes the text. A hash returns no
// errors, so a digest ignores them.
type digest struct{ *bufio.Writer }

func (d digest) number(n uint64) {
	_, _ = d.Write(binary.BigEndian.AppendUint64(d.AvailableBuffer(), n))
}

func (d digest) text(s string) {
	d.number(uint64(len(s)))
	_, _ = d.WriteString(s)
}

func (d digest) flags(all ...bool) {
	for _, on := range all {
		b := byte(0)
		if on {
			b = 1
		}
		_ = d.WriteByte(b)
	}
}

// An entry is a token of the vocabulary, with its text.
type entry struct {
	id   uint32
	text string
}

func (d digest) vocabulary(v map[string]uint32) {
	all := make([]entry, 0, len(v))
	for text, id := range v {
		all = append(all, entry{id, text})
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.text, b.text)) })
	d.number(uint64(len(all)))
	for _, token := range all {
		d.number(uint64(token.id))
		d.text(token.text)
	}
}

// added hashes the added tokens after they were completed: a token of the vocabulary keeps its id
// there.
func (d digest) added(f *tokenizerFile) error {
	if _, _, err := f.tokens(); err != nil {
		return err
	}
	tokens := slices.DeleteFunc(slices.Clone(f.Added), func(t addedToken) bool { return t.Content == "" })
	slices.SortStableFunc(tokens, func(a, b addedToken) int { return cmp.Compare(*a.ID, *b.ID) })
	d.number(uint64(len(tokens)))
	for _, t := range tokens {
		d.number(uint64(*t.ID))
		d.text(t.Content)
		d.flags(t.SingleWord, t.LStrip, t.RStrip, t.Normalized, t.Special)
	}
	return nil
}

// component hashes the JSON of c, with sorted keys and without white space.
func (d digest) component(c *component) error {
	if c == nil {
		d.text("")
		return nil
	}
	in := json.NewDecoder(bytes.NewReader(c.raw))
	in.UseNumber()
	var value any
	if err := in.Decode(&value); err != nil {
		return c.fail(err)
	}
	canonical, err := json.Marshal(value)
	if err != nil {
		return c.fail(err)
	}
	d.text(string(canonical))
	return nil
}

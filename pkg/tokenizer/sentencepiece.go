package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Types of a SentencePiece model's pieces.
const (
	normalPiece  = 1
	unknownPiece = 2
	controlPiece = 3
	userPiece    = 4 // always a token where it occurs
	unusedPiece  = 5
	bytePiece    = 6
)

// Types of SentencePiece models.
const (
	unigramModel = 1
	bpeModel     = 2
)

// A spmPiece is a token of a SentencePiece model.
type spmPiece struct {
	text  string
	score float32
	kind  int
}

// A spmModel is the part of a SentencePiece model that is read.
type spmModel struct {
	pieces       []spmPiece
	kind         int
	byteFallback bool
	suffix       bool // white space belongs to the word before it
	begin, end   int  // the ids of the tokens around a text
	charsmap     []byte
	dummyPrefix  bool
	trim         bool // extra white space is removed
	escape       bool // spaces become visible
}

// fields calls see for every field of a message.
func fields(data []byte, see func(n int32, value []byte, number uint64) error) error {
	for len(data) > 0 {
		num, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		var value []byte
		var number uint64
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(data)
		case protowire.Fixed32Type:
			var bits uint32
			bits, n = protowire.ConsumeFixed32(data)
			number = uint64(bits)
		default:
			n = protowire.ConsumeFieldValue(num, kind, data)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := see(int32(num), value, number); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func parseModel(data []byte) (*spmModel, error) {
	m := &spmModel{kind: unigramModel, begin: 1, end: 2, dummyPrefix: true, trim: true, escape: true}
	err := fields(data, func(n int32, value []byte, _ uint64) error {
		switch n {
		case 1:
			return m.addPiece(value)
		case 2:
			return m.trainer(value)
		case 3:
			return m.normalizer(value)
		}
		return nil
	})
	if err == nil && len(m.pieces) == 0 {
		err = errors.New("the model has no pieces")
	}
	return m, err
}

func (m *spmModel) addPiece(data []byte) error {
	p := spmPiece{kind: normalPiece}
	err := fields(data, func(n int32, value []byte, number uint64) error {
		switch n {
		case 1:
			p.text = string(value)
		case 2:
			p.score = math.Float32frombits(uint32(number))
		case 3:
			p.kind = int(number)
		}
		return nil
	})
	id := len(m.pieces)
	switch {
	case err != nil:
		return err
	case id > maxID:
		return fmt.Errorf("there are more than %d pieces", maxID)
	case len(p.text) > maxLiteral:
		return fmt.Errorf("piece %d has %d bytes; at most %d are allowed", id, len(p.text), maxLiteral)
	case p.text == "" || !utf8.ValidString(p.text):
		return fmt.Errorf("piece %d, %.40q, is empty or not UTF-8", id, p.text)
	case p.kind < normalPiece || p.kind > bytePiece:
		return fmt.Errorf("piece %d has the unknown type %d", id, p.kind)
	case math.IsNaN(float64(p.score)) || math.IsInf(float64(p.score), 0):
		return fmt.Errorf("piece %d has the score %v", id, p.score)
	}
	m.pieces = append(m.pieces, p)
	return nil
}

func (m *spmModel) trainer(data []byte) error {
	return fields(data, func(n int32, _ []byte, number uint64) error {
		switch n {
		case 3:
			m.kind = int(number)
		case 24:
			m.suffix = number != 0
		case 35:
			m.byteFallback = number != 0
		case 41:
			m.begin = int(int32(number))
		case 42:
			m.end = int(int32(number))
		}
		return nil
	})
}

func (m *spmModel) normalizer(data []byte) error {
	return fields(data, func(n int32, value []byte, number uint64) error {
		switch n {
		case 2:
			m.charsmap = bytes.Clone(value)
		case 3:
			m.dummyPrefix = number != 0
		case 4:
			m.trim = number != 0
		case 5:
			m.escape = number != 0
		}
		return nil
	})
}

// readSentencePiece reads a SentencePiece model. The tokens that tokenizer_config.json adds are found
// in the text before the model sees it, as in transformers.
func readSentencePiece(data []byte, config *tokenizerConfig) (*tokenizerFile, error) {
	m, err := parseModel(data)
	if err != nil {
		return nil, err
	}
	switch {
	case m.kind != unigramModel && m.kind != bpeModel:
		return nil, fmt.Errorf("a model of words or characters (type %d) is not supported", m.kind)
	case m.suffix:
		return nil, errors.New("treat_whitespace_as_suffix is not supported")
	case !m.escape:
		return nil, errors.New("a model without visible spaces is not supported")
	}
	if config.PrefixSpace != nil {
		m.dummyPrefix = *config.PrefixSpace
	}
	f := &tokenizerFile{Model: &modelFile{Type: "BPE", ByteFallback: m.byteFallback, FuseUnk: true}, conversion: &conversion{frame: template{{text: true}}, separated: true}}
	norm := &spmNormalizer{spmModel: m, legacy: config.Legacy == nil || *config.Legacy, users: newAddedMatcher()}
	f.conversion.normalize = norm.normalize
	f.conversion.pattern = fmt.Sprint(m.kind, m.dummyPrefix, m.trim, norm.legacy, len(m.charsmap), string(m.charsmap))
	if len(m.charsmap) > 0 {
		if norm.charsmap, err = readCharsmap(m.charsmap); err != nil {
			return nil, err
		}
	}
	if err := f.addPieces(m, config, norm.users); err != nil {
		return nil, err
	}
	f.Decoder = m.decoder()
	return f, f.frame(m, config)
}

// addPieces makes the vocabulary and the added tokens.
func (f *tokenizerFile) addPieces(m *spmModel, config *tokenizerConfig, users *addedMatcher) error {
	vocab := make(map[string]uint32, len(m.pieces))
	ranks := m.ranks()
	var added []addedToken
	for i, p := range m.pieces {
		id := uint32(i)
		if _, other := config.Added[id]; other {
			ranks[i] = noRank // tokenizer_config.json may have another text for it
			continue
		}
		if other, twice := vocab[p.text]; twice {
			return fmt.Errorf("pieces %d and %d are both %.40q", other, id, p.text)
		}
		vocab[p.text] = id
		switch p.kind {
		case unknownPiece, controlPiece:
			added = append(added, specialToken(i, "%s", p.text))
			if p.kind == unknownPiece {
				f.Model.UnkToken = p.text
			}
		case userPiece:
			if err := users.add(p.text, addedToken{ID: &id, Content: p.text}); err != nil {
				return err
			}
		case unusedPiece:
			if m.kind == bpeModel && utf8.RuneCountInString(p.text) > 1 {
				return fmt.Errorf("piece %d, %.40q, is unused: a BPE model with unused pieces is not supported", id, p.text)
			}
		}
	}
	f.Added = config.add(added)
	f.Model.Vocab.ids, f.Model.ranks = vocab, ranks
	if m.kind == unigramModel {
		u, err := newPieces(m, ranks)
		f.conversion.model = u
		return err
	}
	f.conversion.users = users
	return nil
}

// noRank is the rank of a token that no merge makes.
const noRank = math.MaxUint32

// ranks returns the order in which tokens are made: by their scores. Tokens of other kinds are not
// made.
func (m *spmModel) ranks() []uint32 {
	ranks := make([]uint32, len(m.pieces))
	order := make([]int, 0, len(m.pieces))
	for i, p := range m.pieces {
		if ranks[i] = noRank; p.kind == normalPiece {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(m.pieces[b].score, m.pieces[a].score) })
	for n, i := range order {
		if ranks[i] = uint32(n); n > 0 && m.pieces[i].score == m.pieces[order[n-1]].score {
			ranks[i] = ranks[order[n-1]]
		}
	}
	return ranks
}

// decoder returns the decoder of transformers.
func (m *spmModel) decoder() *component {
	steps := `{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}`
	if m.dummyPrefix {
		steps += `,{"type":"Strip","content":" ","start":1,"stop":0}`
	}
	return &component{Type: "Sequence", raw: json.RawMessage(`{"type":"Sequence","decoders":[` + steps + `]}`)}
}

// frame puts the tokens around a text that the configuration asks for.
func (f *tokenizerFile) frame(m *spmModel, config *tokenizerConfig) error {
	id := func(token configToken, piece int) (uint32, error) {
		if token == "" && piece >= 0 && piece < len(m.pieces) {
			return uint32(piece), nil
		}
		for _, t := range f.Added {
			if t.Content == string(token) {
				return *t.ID, nil
			}
		}
		return 0, fmt.Errorf("tokenizer_config.json names the token %.40q, which does not exist", token)
	}
	if adds := config.AddBegin; adds != nil && *adds || adds == nil && m.begin >= 0 {
		begin, err := id(config.Begin, m.begin)
		if err != nil {
			return err
		}
		f.conversion.frame = slices.Insert(f.conversion.frame, 0, templatePart{ids: []uint32{begin}})
	}
	if config.AddEnd {
		end, err := id(config.End, m.end)
		if err != nil {
			return err
		}
		f.conversion.frame = append(f.conversion.frame, templatePart{ids: []uint32{end}})
	}
	return nil
}

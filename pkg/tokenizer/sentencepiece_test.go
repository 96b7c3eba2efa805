package tokenizer

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// spmMessage returns a message with these fields: numbers, texts, and scores.
func spmMessage(fields map[protowire.Number]any) (out []byte) {
	for n, value := range fields {
		switch v := value.(type) {
		case int:
			out = protowire.AppendVarint(protowire.AppendTag(out, n, protowire.VarintType), uint64(v))
		case string:
			out = protowire.AppendString(protowire.AppendTag(out, n, protowire.BytesType), v)
		case float64:
			out = protowire.AppendFixed32(protowire.AppendTag(out, n, protowire.Fixed32Type), math.Float32bits(float32(v)))
		}
	}
	return out
}

type pieceFile struct {
	text  string
	score float64
	kind  int
}

// spmModelFile returns a SentencePiece model. Its first pieces are <unk>, <s> and </s>.
func spmModelFile(trainer, normalizer map[protowire.Number]any, pieces ...pieceFile) string {
	var out []byte
	add := func(n protowire.Number, message []byte) {
		out = protowire.AppendBytes(protowire.AppendTag(out, n, protowire.BytesType), message)
	}
	for _, p := range append([]pieceFile{{"<unk>", 0, unknownPiece}, {"<s>", 0, controlPiece}, {"</s>", 0, controlPiece}}, pieces...) {
		add(1, spmMessage(map[protowire.Number]any{1: p.text, 2: p.score, 3: p.kind}))
	}
	add(2, spmMessage(trainer))
	add(3, spmMessage(normalizer))
	return string(out)
}

var (
	identity = map[protowire.Number]any{4: 0} // spaces stay
	asBPE    = map[protowire.Number]any{3: bpeModel}
)

// bpePieces have the ids 3 (▁), 4 (a), 5 (b), 6 (ab), 7 (aa), 8 (▁a), 9 (never), 10 (|).
var bpePieces = []pieceFile{
	{"▁", -9, 1}, {"a", -9, 1}, {"b", -9, 1}, {"ab", -2, 1}, {"aa", -2, 1}, {"▁a", -3, 1}, {"never", -1, 1}, {"|", 0, userPiece},
}

func TestSentencePieceJoinsTheHighestScore(t *testing.T) {
	tok := open(t, map[string]string{"tokenizer.model": spmModelFile(asBPE, identity, bpePieces...)})
	for text, want := range map[string][]uint32{
		"b aab":   {3, 5, 3, 7, 5}, // aa and ab have the same score, and aa is the left one
		"aab":     {3, 7, 5},
		"a|a":     {8, 10, 4}, // nothing is joined with a piece that a user has defined
		"|":       {3, 10},
		"xxa":     {3, 0, 4}, // unknown characters that follow each other are one token
		"":        {},
		"a</s>b":  {8, 2, 3, 5}, // a text behind an added token begins with a space
		"  a":     {3, 3, 8},
		"a<unk>a": {8, 0, 8},
	} {
		if got := tok.Encode(text, false); !slices.Equal(got, want) {
			t.Errorf("%q: %v; want %v", text, got, want)
		}
	}
	if got, want := tok.Encode("a", true), []uint32{1, 8}; !slices.Equal(got, want) {
		t.Errorf("with <s>: %v; want %v", got, want)
	}
	if got := tok.Decode([]uint32{1, 8, 6, 3, 4, 2}, true); got != "aab a" {
		t.Errorf("Decode: %q", got)
	}
}

// TestSentencePieceAsTransformersConfiguresIt: tokenizer_config.json decides about the space before a
// text, the tokens around it, and tokens that the model lacks.
func TestSentencePieceAsTransformersConfiguresIt(t *testing.T) {
	for _, c := range []struct {
		config, text string
		want         []uint32
	}{
		{`{}`, "a</s>a", []uint32{1, 8, 2, 8}},
		{`{"legacy":true}`, "a</s>a", []uint32{1, 8, 2, 8}},
		{`{"legacy":false}`, "a</s>a", []uint32{1, 8, 2, 4}},
		{`{"legacy":false}`, " a", []uint32{1, 8}},
		{`{"legacy":true}`, " a", []uint32{1, 3, 8}},
		{`{"add_prefix_space":false}`, "a", []uint32{1, 4}},
		{`{"add_bos_token":false,"add_eos_token":true}`, "a", []uint32{8, 2}},
		{`{"bos_token":{"content":"<new>"},"added_tokens_decoder":{"11":{"content":"<new>","special":true},"4":{"content":"<old>"}}}`, "<new>b<old>", []uint32{11, 11, 3, 5, 4}},
	} {
		tok := open(t, map[string]string{"tokenizer.model": spmModelFile(asBPE, identity, bpePieces...), "tokenizer_config.json": c.config})
		if got := tok.Encode(c.text, true); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %v; want %v", c.config, c.text, got, c.want)
		}
	}
}

// unigramPieces have the ids 3 (▁), 4 (a), 5 (b), 6 (ab), 7 (▁a), 8 (USR), 9 (never), 10 (中).
var unigramPieces = []pieceFile{
	{"▁", -2, 1}, {"a", -2, 1}, {"b", -2, 1}, {"ab", -3, 1}, {"▁a", -3.5, 1}, {"USR", 0, userPiece}, {"aba", 0, unusedPiece}, {"中", -5, 1},
}

func TestUnigramTakesTheGreatestSum(t *testing.T) {
	file := spmModelFile(nil, nil, unigramPieces...)
	tok := open(t, map[string]string{"tokenizer.model": file, "tokenizer_config.json": `{"add_bos_token":false}`})
	for text, want := range map[string][]uint32{
		"ab":                     {3, 6},            // -5 against -5.5 for ▁a b
		"a":                      {7},               // -3.5 against -4
		" a   ab  ":              {7, 3, 6},         // extra white space is removed
		"aba":                    {3, 6, 4},         // aba is unused
		"aUSRb":                  {7, 8, 5},         // always a token
		"中xyb中":                  {3, 10, 0, 5, 10}, // unknown characters that follow each other are one token
		"\u00e9":                 {3, 0},
		"":                       {},
		"    ":                   {},
		"<s>a</s> b":             {1, 7, 2, 3, 5},
		strings.Repeat("ab", 50): append([]uint32{3}, slices.Repeat([]uint32{6}, 50)...),
	} {
		if got := tok.Encode(text, false); !slices.Equal(got, want) {
			t.Errorf("%q: %v; want %v", text, got, want)
		}
	}
	if id, ok := tok.TokenID("ab"); id != 6 || !ok {
		t.Errorf("TokenID: %d, %v", id, ok)
	}
}

// bytePieces are the pieces of all bytes; the first has the id 3.
func bytePieces() (all []pieceFile) {
	for b := range 256 {
		const digits = "0123456789ABCDEF"
		all = append(all, pieceFile{"<0x" + string([]byte{digits[b>>4], digits[b&15]}) + ">", 0, bytePiece})
	}
	return all
}

func TestUnknownCharactersBecomeBytes(t *testing.T) {
	for name, kind := range map[string]int{"BPE": bpeModel, "unigram": unigramModel} {
		file := spmModelFile(map[protowire.Number]any{3: kind, 35: 1}, identity, append(bytePieces(), pieceFile{"▁", -1, 1}, pieceFile{"a", -1, 1})...)
		tok := open(t, map[string]string{"tokenizer.model": file})
		want := []uint32{1, 259, 3 + 0xC3, 3 + 0xA9, 260, 3 + '\n', 3 + 'b'}
		if got := tok.Encode("éa\nb", true); !slices.Equal(got, want) {
			t.Errorf("%s: %v; want %v", name, got, want)
		}
		if got := tok.Decode(want, true); got != "éa\nb" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// charsmapOf returns the normalization that replaces one text.
func charsmapOf(from, to string) string {
	const block = 256
	units := make([]uint32, (len(from)+2)*block)
	at := uint32(0)
	link := func(base uint32) { units[at] |= (at ^ base) << 10 } // from the unit to the block of its children
	for i := range len(from) {
		base := uint32(i+1) * block
		link(base)
		at = base ^ uint32(from[i])
		units[at] = uint32(from[i])
	}
	base := uint32(len(from)+1) * block
	link(base)
	units[at] |= 1 << 8
	units[base] = 1<<31 | 1 // the replacement is at byte 1
	out := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, unit := range units {
		out = binary.LittleEndian.AppendUint32(out, unit)
	}
	return string(out) + "\x00" + to + "\x00"
}

func TestSentencePieceNormalizes(t *testing.T) {
	for _, c := range []struct {
		from, to, text string
		want           []uint32
	}{
		{"Ａ", "a", "ＡbＡ", []uint32{3, 6, 4}},
		{"Ａ", "a", "\u3000", []uint32{3, 0}},
		{"\u3000", " ", "\u3000a\u3000\u3000b\u3000", []uint32{7, 3, 5}},
		{"x", "", "xaxb", []uint32{3, 6}},
		{"US", "a", "USRUS", []uint32{3, 8, 4}}, // but not in a piece that a user has defined
	} {
		file := spmModelFile(nil, map[protowire.Number]any{2: charsmapOf(c.from, c.to)}, unigramPieces...)
		if got := open(t, map[string]string{"tokenizer.model": file}).Encode(c.text, false); !slices.Equal(got, c.want) {
			t.Errorf("%q for %q in %q: %v; want %v", c.to, c.from, c.text, got, c.want)
		}
	}
}

func TestSentencePieceNamesWhatIsWrong(t *testing.T) {
	normal := pieceFile{"a", -1, 1}
	for _, c := range []struct{ file, config, want string }{
		{"\x0A", "", "unexpected EOF"},
		{"", "", "the model has no pieces"},
		{spmModelFile(map[protowire.Number]any{3: 3}, nil, normal), "", "a model of words or characters (type 3) is not supported"},
		{spmModelFile(map[protowire.Number]any{24: 1}, nil, normal), "", "treat_whitespace_as_suffix is not supported"},
		{spmModelFile(nil, map[protowire.Number]any{5: 0}, normal), "", "without visible spaces"},
		{spmModelFile(nil, nil, normal, normal), "", `pieces 3 and 4 are both "a"`},
		{spmModelFile(nil, nil, pieceFile{"a", math.NaN(), 1}), "", "piece 3 has the score NaN"},
		{spmModelFile(nil, nil, pieceFile{"a", 0, 9}), "", "piece 3 has the unknown type 9"},
		{spmModelFile(nil, nil, pieceFile{"\xFF", 0, 1}), "", "is empty or not UTF-8"},
		{spmModelFile(nil, nil, pieceFile{strings.Repeat("a", 300), 0, 1}), "", "piece 3 has 300 bytes"},
		{spmModelFile(asBPE, nil, pieceFile{"ab", 0, unusedPiece}), "", "a BPE model with unused pieces"},
		{spmModelFile(map[protowire.Number]any{35: 1}, nil, normal), "", "no piece has the byte 0x00"},
		{spmModelFile(nil, map[protowire.Number]any{2: "abc"}, normal), "", "precompiled_charsmap"},
		{spmModelFile(nil, map[protowire.Number]any{2: "\x08\x00\x00\x00abcd"}, normal), "", "precompiled_charsmap"},
		{spmModelFile(nil, map[protowire.Number]any{2: charsmapOf("a", strings.Repeat("b", 300))}, normal), "", "precompiled_charsmap"},
		{spmModelFile(nil, nil, normal), `{"bos_token":"<nope>"}`, `the token "<nope>", which does not exist`},
	} {
		checkRefusal(t, "tokenizer.model", c.file, c.config, c.want)
	}
}

func FuzzSentencePiece(f *testing.F) {
	f.Add([]byte(spmModelFile(asBPE, identity, bpePieces...)), `{"legacy":false}`)
	f.Add([]byte(spmModelFile(nil, map[protowire.Number]any{2: charsmapOf("é", "a")}, unigramPieces...)), `{"add_eos_token":true}`)
	f.Add([]byte(spmModelFile(map[protowire.Number]any{35: 1}, nil, bytePieces()...)), `{}`)
	f.Fuzz(func(t *testing.T, data []byte, config string) { tryFile(t, "tokenizer.model", data, config) })
}

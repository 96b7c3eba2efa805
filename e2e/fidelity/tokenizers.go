package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/whence-dev/whence/chat-service/postprocess"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// One in ofVocabulary texts and lists of ids consists of the family's own tokens.
const ofVocabulary = 4

// A tokenizerRow has the results of comparing one family's tokenizer.
type tokenizerRow struct {
	family           string
	strings, ids     int
	encodes, decodes int // mismatches with the Rust library
	splits, halves   int // texts that an incremental Decoder decoded differently, and its parts that ended within a character
	stops            int // texts that a stop string ended at another position, or that lost or showed a part of a stop string
	first            []string
}

func (r *tokenizerRow) differences() []string { return r.first }

// complain records the first few mismatches.
func (r *tokenizerRow) complain(format string, args ...any) {
	if len(r.first) < 5 {
		r.first = append(r.first, r.family+": "+fmt.Sprintf(format, args...))
	}
}

type tokenizerQuestion struct {
	Texts [][]byte   `json:"texts"`
	IDs   [][]uint32 `json:"ids"`
}

type tokenizerAnswer struct {
	Texts []struct {
		Plain, Framed []uint32 // without and with the tokens of the post-processor
		Decoded       string
	}
	IDs []struct{ All, Unspecial string }
}

// compareTokenizers compares both on n texts, and on n/5 lists of random ids.
func compareTokenizers(ctx context.Context, packages string, f family, n int, seed uint64) (*tokenizerRow, error) {
	tok, err := f.tokenizer()
	if err != nil {
		return nil, err
	}
	w := newWriter(seed)
	var q tokenizerQuestion
	for _, text := range w.texts(n - n/ofVocabulary) {
		q.Texts = append(q.Texts, []byte(text))
	}
	for len(q.Texts) < n {
		q.Texts = append(q.Texts, []byte(tok.Decode(w.ids(tok), false)))
	}
	for range n / 5 {
		q.IDs = append(q.IDs, w.ids(tok))
	}
	var a tokenizerAnswer
	if err := ask(ctx, node(tokenizersScript, packages, f.tokenizerFile()), q, &a); err != nil {
		return nil, err
	}
	r := &tokenizerRow{family: f.name, strings: len(q.Texts), ids: len(q.IDs)}
	for i, want := range a.Texts {
		r.encode(tok, string(q.Texts[i]), false, want.Plain)
		r.encode(tok, string(q.Texts[i]), true, want.Framed)
		r.decode(tok, want.Plain, false, want.Decoded)
		r.incremental(tok, w, want.Plain)
	}
	for i, want := range a.IDs {
		r.decode(tok, q.IDs[i], false, want.All)
		r.decode(tok, q.IDs[i], true, want.Unspecial)
		r.incremental(tok, w, q.IDs[i])
	}
	return r, nil
}

// ids returns random ids. Low ids are likelier: in most families they are bytes, byte tokens and
// special tokens, the difficult cases of decoding.
func (w writer) ids(tok *tokenizer.Tokenizer) []uint32 {
	within := tok.VocabSize()
	if w.IntN(3) == 0 {
		within = min(within, 300)
	}
	ids := make([]uint32, 1+w.IntN(20))
	for i := range ids {
		ids[i] = uint32(w.IntN(within))
	}
	if w.IntN(4) == 0 {
		slices.Sort(ids)
	}
	return ids
}

func (r *tokenizerRow) encode(tok *tokenizer.Tokenizer, text string, framed bool, want []uint32) {
	if got := tok.Encode(text, framed); !slices.Equal(got, want) {
		r.encodes++
		r.complain("Encode(%.300q, %v)\n got %v\nwant %v", text, framed, got, want)
	}
}

func (r *tokenizerRow) decode(tok *tokenizer.Tokenizer, ids []uint32, skipSpecial bool, want string) {
	if got := tok.Decode(ids, skipSpecial); got != want {
		r.decodes++
		r.complain("Decode(%v, %v)\n got %.300q\nwant %.300q", ids, skipSpecial, got, want)
	}
}

// incremental decodes ids one at a time, and then a few at a time.
func (r *tokenizerRow) incremental(tok *tokenizer.Tokenizer, w writer, ids []uint32) {
	whole := tok.Decode(ids, true)
	d := tok.NewDecoder(true)
	for _, most := range []int{1, 4} {
		var text strings.Builder
		var parts []string
		for rest := ids; len(rest) > 0; {
			n := min(1+w.IntN(most), len(rest))
			part := d.Next(rest[:n]...)
			if !utf8.ValidString(part) {
				r.halves++
				r.complain("Next(%v) of %v ends within a character: %q", rest[:n], ids, part)
			}
			text.WriteString(part)
			parts = append(parts, part)
			rest = rest[n:]
		}
		last := d.Flush()
		text.WriteString(last)
		if text.String() != whole {
			r.splits++
			r.complain("%v in parts\n got %.300q\nwant %.300q", ids, text.String(), whole)
		}
		r.stop(w.stopStrings(whole), append(parts, last), whole)
	}
}

// stopStrings returns some strings that occur in text, and some of which only the beginning occurs.
func (w writer) stopStrings(text string) []string {
	var stops []string
	runes := []rune(text)
	for range w.IntN(4) {
		if len(runes) > 0 {
			from := w.IntN(len(runes))
			stops = append(stops, string(runes[from:min(len(runes), from+1+w.IntN(8))])+w.pick([]string{"", "", "x", "好"}))
		}
	}
	return stops
}

// stop passes parts to a matcher, and compares the result with the whole text up to the stop string
// that ends first.
func (r *tokenizerRow) stop(stops, parts []string, whole string) {
	want, end := whole, len(whole)+1
	for _, stop := range stops {
		if i := strings.Index(whole, stop); i >= 0 && (i+len(stop) < end || i+len(stop) == end && i < len(want)) {
			want, end = whole[:i], i+len(stop)
		}
	}
	m := postprocess.NewStopMatcher(stops)
	var got strings.Builder
	for _, part := range parts {
		emit, _, _ := m.Next(part)
		got.WriteString(emit)
	}
	got.WriteString(m.Flush())
	if got.String() != want {
		r.stops++
		r.complain("%q with stop strings %q\n got %.300q\nwant %.300q", parts, stops, got.String(), want)
	}
}

func tokenizerTable(rows []*tokenizerRow) string {
	var b strings.Builder
	b.WriteString("| family | strings | encode mismatches | lists of ids | decode mismatches | incremental mismatches | half characters | stop string mismatches |\n")
	b.WriteString("|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d | %d |\n",
			r.family, r.strings, r.encodes, r.strings+r.ids, r.decodes, r.splits, r.halves, r.stops)
	}
	return b.String()
}

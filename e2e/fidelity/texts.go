package main

import (
	"math/rand/v2"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A writer generates texts that tokenizers may disagree about. Equal seeds give equal texts.
type writer struct{ *rand.Rand }

func newWriter(seed uint64) writer { return writer{rand.New(rand.NewPCG(seed, 2))} }

// texts returns n texts: every kind in turn, then mixtures of kinds. Some are not valid UTF-8.
func (w writer) texts(n int) []string {
	kinds := []func() string{
		w.sentence, w.sentence, w.polyglot, w.emoji, w.code, w.spaces, w.control, w.anyRunes, w.longWord, w.special, w.numbers,
		w.marks, w.apostrophes, w.broken,
	}
	list := make([]string, 0, n)
	for i := 0; len(list) < n; i++ {
		if i%(len(kinds)+3) < len(kinds) {
			list = append(list, kinds[i%(len(kinds)+3)]())
			continue
		}
		var mixed strings.Builder
		for range 2 + w.IntN(3) {
			mixed.WriteString(kinds[w.IntN(len(kinds))]())
		}
		list = append(list, mixed.String())
	}
	return list
}

func (w writer) pick(of []string) string { return of[w.IntN(len(of))] }

// join joins few to few+more results of next, with one of seps between any two.
func (w writer) join(few, more int, next func() string, seps ...string) string {
	var b strings.Builder
	for i := range few + w.IntN(more+1) {
		if i > 0 {
			b.WriteString(w.pick(seps))
		}
		b.WriteString(next())
	}
	return b.String()
}

// word returns a word of a language. Sometimes it is capitalized, in capitals, or composed of parts
// of two words.
func (w writer) word(words []string) string {
	// Low positions are likelier: words of real texts are not equally frequent.
	at := min(w.IntN(len(words)), w.IntN(len(words)))
	switch word := words[at]; w.IntN(12) {
	case 0:
		return strings.ToUpper(word)
	case 1, 2:
		first, n := utf8.DecodeRuneInString(word)
		return string(unicode.ToTitle(first)) + word[n:]
	case 3:
		other := []rune(w.pick(words))
		return word + string(other[len(other)/2:])
	default:
		return word
	}
}

func (w writer) sentence() string {
	words := languages[w.IntN(len(languages))]
	sep := " "
	if unspaced[words[0]] {
		sep = ""
	}
	return w.join(3, 20, func() string { return w.word(words) }, sep, sep, sep, sep, ", ", " – ", "; ", "\n") + w.pick(endings)
}

func (w writer) polyglot() string {
	return w.join(2, 12, func() string { return w.word(languages[w.IntN(len(languages))]) }, "", " ", " ", "-", "/", "_", "、", "·")
}

func (w writer) emoji() string {
	return w.join(1, 12, func() string { return w.pick(emojis) }, "", "", "\u200d", " ", "\ufe0f", "x")
}

func (w writer) code() string {
	return w.join(1, 8, func() string {
		indent := strings.Repeat(w.pick([]string{" ", "  ", "\t"}), w.IntN(6))
		return indent + w.join(1, 9, func() string { return w.pick(codes) }, " ", "", "", "")
	}, "\n", "\n", "\n\n", "\r\n", ";\n")
}

func (w writer) spaces() string {
	return w.join(1, 10, func() string {
		run := strings.Repeat(w.pick(whites), 1+w.IntN(1+w.IntN(40)))
		return run + w.pick([]string{"", "", "a", "Word", "9", ".", "é", "好"})
	}, whites...)
}

func (w writer) control() string {
	return w.join(1, 16, func() string {
		if w.IntN(3) == 0 {
			return w.word(languages[0])
		}
		return string(rune(w.IntN(32) + w.IntN(2)*0x7f)) // C0, and a little of C1
	}, "", "", " ")
}

func (w writer) anyRunes() string {
	return w.join(1, 6, func() string {
		var b strings.Builder
		block := rune(w.IntN(0x110)) << 12
		if w.IntN(3) > 0 {
			block = rune(w.IntN(0x33)) << 8 // the range of most scripts
		}
		for range 1 + w.IntN(12) {
			b.WriteRune(block + rune(w.IntN(0x100))) // surrogates are written as U+FFFD
		}
		return b.String()
	}, "", " ", "a", "\n")
}

func (w writer) longWord() string {
	n := 1 + w.IntN(1<<(4+w.IntN(9)))
	switch part := w.pick(longs); w.IntN(3) {
	case 0:
		return strings.Repeat(part, n/len(part)+1)
	case 1:
		var b strings.Builder
		for b.Len() < n {
			b.WriteString(w.pick(longs))
		}
		return b.String()
	default:
		var b strings.Builder
		for range n {
			b.WriteByte('a' + byte(w.IntN(26)))
		}
		return b.String()
	}
}

func (w writer) special() string {
	return w.join(1, 8, func() string {
		token := w.pick(specials)
		switch w.IntN(5) {
		case 0:
			return w.word(languages[w.IntN(len(languages))])
		case 1:
			return token[:w.IntN(len(token))] // may end within a character
		}
		return token
	}, "", "", " ", "\n", "  ", "x")
}

func (w writer) numbers() string {
	return w.join(1, 10, func() string {
		digits := []rune(w.pick(digits))
		var b strings.Builder
		for range 1 + w.IntN(10) {
			b.WriteRune(digits[w.IntN(len(digits))])
		}
		return b.String()
	}, "", " ", ".", ",", "-", "e", "x", "/", "%", ":")
}

func (w writer) marks() string {
	return w.join(1, 6, func() string {
		var b strings.Builder
		b.WriteString(w.pick(bases))
		for range w.IntN(1 + w.IntN(50)) {
			b.WriteString(w.pick(combining))
		}
		return b.String()
	}, "", " ")
}

func (w writer) apostrophes() string {
	return w.join(1, 12, func() string { return w.word(languages[w.IntN(3)]) + w.pick(apostrophes) }, "", " ", " ", "\n")
}

// broken returns a text with some bytes removed, replaced or added.
func (w writer) broken() string {
	b := []byte(w.polyglot() + w.emoji())
	for range 1 + w.IntN(5) {
		at := w.IntN(len(b))
		switch w.IntN(3) {
		case 0:
			b = append(b[:at], b[at+1:]...)
		case 1:
			b[at] = byte(w.IntN(256))
		default:
			b = append(b[:at+1], b[at:]...)
			b[at] = byte(0x80 + w.IntN(128))
		}
		if len(b) == 0 {
			return "\xff"
		}
	}
	return string(b)
}

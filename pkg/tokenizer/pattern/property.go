package pattern

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/cases"
)

var errProperty = errors.New("no such property")

// properties has the sets that expressions have used, by the lower-case name without separators.
var properties sync.Map // of string to set

// property returns the set with a name, in lower case and without separators.
func property(name string) (set, error) {
	if s, ok := properties.Load(name); ok {
		return s.(set), nil
	}
	s := newProperty(name)
	if s == nil {
		return nil, errProperty
	}
	properties.Store(name, s)
	return s, nil
}

// union returns the union of properties that exist.
func union(names ...string) set {
	var all set
	for _, name := range names {
		s, err := property(name)
		if err != nil {
			panic(name) // a mistake in this file
		}
		all = all.union(s)
	}
	return all
}

// newProperty returns nil if there is no such property.
func newProperty(name string) set {
	switch name {
	case "any":
		return set(nil).negate()
	case "ascii":
		return set{{0, 0x7F}}
	case "assigned":
		return union("cn").negate()
	case "cn", "unassigned":
		return union("l", "m", "n", "p", "s", "z", "cc", "cf", "co", "cs").negate()
	case "c", "other":
		return union("cc", "cf", "co", "cs", "cn")
	case "lc", "casedletter":
		return union("lu", "ll", "lt")
	case "alpha", "alphabetic":
		return union("l", "nl", "otheralphabetic")
	case "alnum":
		return union("alpha", "nd")
	case "lower", "lowercase":
		return union("ll", "otherlowercase")
	case "upper", "uppercase":
		return union("lu", "otheruppercase")
	case "digit":
		return union("nd")
	case "posixpunct":
		return union("p", "s")
	case "cntrl":
		return union("cc")
	case "space":
		return union("whitespace")
	case "blank":
		return union("zs").union(setOf('\t'))
	case "xdigit":
		return newSet(runeSpan{'0', '9'}, runeSpan{'A', 'F'}, runeSpan{'a', 'f'})
	case "word":
		return union("alpha", "m", "nd", "pc")
	case "graph":
		return union("whitespace", "cc", "cn", "cs").negate()
	case "print":
		return union("graph", "zs")
	}
	if s, ok := emoji[name]; ok {
		return s
	}
	return fromUnicode(name)
}

// longNames are the long names of general categories, and the codes of common scripts.
var longNames = map[string]string{
	"letter": "l", "uppercaseletter": "lu", "lowercaseletter": "ll", "titlecaseletter": "lt", "modifierletter": "lm", "otherletter": "lo",
	"mark": "m", "combiningmark": "m", "nonspacingmark": "mn", "spacingmark": "mc", "enclosingmark": "me",
	"number": "n", "decimalnumber": "nd", "letternumber": "nl", "othernumber": "no",
	"punct": "p", "punctuation": "p", "connectorpunctuation": "pc", "dashpunctuation": "pd", "openpunctuation": "ps", "closepunctuation": "pe",
	"initialpunctuation": "pi", "finalpunctuation": "pf", "otherpunctuation": "po",
	"symbol": "s", "mathsymbol": "sm", "currencysymbol": "sc", "modifiersymbol": "sk", "othersymbol": "so",
	"separator": "z", "spaceseparator": "zs", "lineseparator": "zl", "paragraphseparator": "zp",
	"control": "cc", "format": "cf", "surrogate": "cs", "privateuse": "co",
	"hani": "han", "hira": "hiragana", "kana": "katakana", "hang": "hangul", "latn": "latin", "cyrl": "cyrillic", "grek": "greek",
	"arab": "arabic", "hebr": "hebrew", "deva": "devanagari", "zyyy": "common", "zinh": "inherited",
}

// fromUnicode returns a category, script or property of package unicode, with the characters that
// are newer.
func fromUnicode(name string) set {
	if short, ok := longNames[name]; ok {
		name = short
	}
	for _, tables := range []map[string]*unicode.RangeTable{unicode.Categories, unicode.Scripts, unchanged} {
		for key, table := range tables {
			if strings.ToLower(strings.ReplaceAll(key, "_", "")) != name {
				continue
			}
			s := fromTables(table).union(newerOf(name))
			if name == "mn" {
				s = s.minus(newer["mc"]) // a character has become a spacing mark
			}
			return s
		}
	}
	return newerOf(name)
}

// unchanged has the properties whose newer characters are known.
var unchanged = map[string]*unicode.RangeTable{
	"White_Space": unicode.White_Space, "Join_Control": unicode.Join_Control, "Ideographic": unicode.Ideographic, "Unified_Ideograph": unicode.Unified_Ideograph,
	"Other_Alphabetic": unicode.Other_Alphabetic, "Other_Lowercase": unicode.Other_Lowercase, "Other_Uppercase": unicode.Other_Uppercase,
	"Other_Grapheme_Extend": unicode.Other_Grapheme_Extend, "Hex_Digit": unicode.Hex_Digit, "Radical": unicode.Radical, "Variation_Selector": unicode.Variation_Selector,
}

// A longFold is several characters that equal single characters in any case: "ss" and "ß".
type longFold struct {
	to   []rune
	from []rune
}

// longFolds returns all of them, in order of their text.
var longFolds = sync.OnceValue(func() []longFold {
	var list []longFold
	fold := cases.Fold()
	for _, block := range []runeSpan{{0x80, 0x1FFF}, {0xFB00, 0xFB17}} {
		for r := block.lo; r <= block.hi; r++ {
			to := []rune(fold.String(string(r)))
			if len(to) < 2 {
				continue
			}
			i := slices.IndexFunc(list, func(f longFold) bool { return slices.Equal(f.to, to) })
			if i < 0 {
				i, list = len(list), append(list, longFold{to: to})
			}
			list[i].from = append(list[i].from, r)
		}
	}
	slices.SortStableFunc(list, func(a, b longFold) int { return len(a.to) - len(b.to) })
	return list
})

// unfold returns the text that equals r in any case, or nil.
func unfold(r rune) []rune {
	if r < 0x80 {
		return nil
	}
	for _, f := range longFolds() {
		if slices.Contains(f.from, r) {
			return f.to
		}
	}
	return nil
}

// cased returns the characters that have variants.
var cased = sync.OnceValue(func() []rune {
	var all []rune
	for r := rune(0); r <= 0x1FFFF; r++ {
		if unicode.SimpleFold(r) != r {
			all = append(all, r)
		}
	}
	for _, pair := range newerCases {
		for d := range pair.n {
			all = append(all, pair.upper+d, pair.lower+d)
		}
	}
	for _, f := range longFolds() {
		all = append(all, f.from...)
	}
	slices.Sort(all)
	return slices.Compact(all)
})

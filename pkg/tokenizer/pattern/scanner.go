package pattern

import (
	"strings"
	"unicode/utf8"
)

// A scanner is a hand-written expression. It returns the end of the match that begins at byte i of
// s, or i if there is no match. It is equivalent to the expression, as tests and fuzzing check, but
// takes linear time and does not convert the text to runes.
type scanner func(s string, i int) int

func (scan scanner) Matches(dst []Span, s string) ([]Span, error) {
	for i := 0; i < len(s); {
		if end := scan(s, i); end > i {
			dst = append(dst, Span{i, end})
			i = end
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		i += n
	}
	return dst, nil
}

// The expressions that have a scanner, and parts of them.
const (
	// "ſ" is an "s", too.
	foldedContractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`

	spaces   = `\s*[\r\n]+|\s+(?!\S)|\s+`
	cl100k1  = foldedContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + spaces
	cl100k3  = foldedContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + spaces
	gpt2     = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	o200kA   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	o200kB   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	o200k    = o200kA + foldedContractions + `?|` + o200kB + foldedContractions + `?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + spaces
	tekken   = o200kA + `|` + o200kB + `|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + spaces
	deepseek = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
	digits3  = `\p{N}{1,3}`
	han      = `[一-龥぀-ゟ゠-ヿ]+`
)

// The expressions of tiktoken files.
const (
	Qwen   = cl100k1
	CL100K = cl100k3
	O200K  = o200k
	// Kimi's words are Chinese, or not.
	Kimi = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+` + foldedContractions +
		`?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*` + foldedContractions +
		`?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + spaces
)

// GPT2 is the default expression of ByteLevel pre-tokenizers.
var GPT2 Pattern = scanner(scanGPT2)

// Words matches words, and the characters between words and white space: `\w+|[^\w\s]+`.
var Words Pattern = scanner(scanWords)

// scanners are the scanners of the common models' expressions, by the text of the expression.
var scanners = map[string]scanner{
	cl100k1:  func(s string, i int) int { return scanCL100K(s, i, 1) }, // Qwen 2 and 3
	cl100k3:  func(s string, i int) int { return scanCL100K(s, i, 3) }, // Llama 3
	gpt2:     scanGPT2,
	o200k:    func(s string, i int) int { return scanO200K(s, i, 3, true) },  // GPT-4o, GPT-OSS
	tekken:   func(s string, i int) int { return scanO200K(s, i, 1, false) }, // Mistral since Nemo
	deepseek: scanDeepSeek,                                                   // DeepSeek V3 and R1, with the next two scanners
	digits3:  func(s string, i int) int { return scanNumbers(s, i, 3) },
	han:      scanHan,
}

func scanCL100K(s string, i, digits int) int {
	c, n := classAt(s, i)
	if s[i] == '\'' {
		if end := scanContraction(s, i); end > i {
			return end
		}
	}
	if c&letter != 0 {
		return run(s, i+n, letter)
	}
	if c&number != 0 {
		return scanNumbers(s, i, digits)
	}
	if !isNewline(s[i]) {
		if end := run(s, i+n, letter); end > i+n {
			return end
		}
	}
	return scanRest(s, i, "\r\n")
}

func scanGPT2(s string, i int) int {
	if s[i] == '\'' {
		for _, short := range [...]string{"s", "t", "re", "ve", "m", "ll", "d"} {
			if strings.HasPrefix(s[i+1:], short) {
				return i + 1 + len(short)
			}
		}
	}
	word := i
	if s[i] == ' ' {
		word++
	}
	for _, of := range [...]class{letter, number} {
		if end := run(s, word, of); end > word {
			return end
		}
	}
	if end := runOther(s, word, letter|number|space); end > word {
		return end
	}
	return scanSpaces(s, i, false)
}

// scanO200K recognizes two kinds of words: capitals followed by at least one small letter,
// otherwise capitals followed by any number of small letters. Marks and letters without case count
// as both.
func scanO200K(s string, i, digits int, contractions bool) int {
	const (
		capital = upper | plain | mark
		small   = lowerCase | plain | mark
	)
	c, n := classAt(s, i)
	starts := []int{i + n, i} // the character before the letters is optional, but tried first
	if c&(letter|number) != 0 || isNewline(s[i]) {
		starts = starts[1:]
	}
	end := i
	for _, start := range starts {
		at, both := start, start // both: after the last character that is both capital and small
		for at < len(s) {
			c, n := classAt(s, at)
			if c&capital == 0 {
				break
			}
			at += n
			if c&small != 0 {
				both = at
			}
		}
		if tail := run(s, at, small); tail > at {
			end = tail
		} else {
			end = both
		}
		if end > start {
			break
		}
		end = i
	}
	if end == i {
		for _, start := range starts {
			if at := run(s, start, capital); at > start {
				end = at // no small letter follows, or the loop above has ended the word
				break
			}
		}
	}
	if end > i {
		if contractions && end < len(s) && s[end] == '\'' {
			end = scanContraction(s, end)
		}
		return end
	}
	if c&number != 0 {
		return scanNumbers(s, i, digits)
	}
	return scanRest(s, i, "\r\n/")
}

func scanDeepSeek(s string, i int) int {
	c, n := classAt(s, i)
	if s[i] < utf8.RuneSelf && c&(punct|symbolic) != 0 {
		end := i + 1
		for end < len(s) && (s[end]|0x20) >= 'a' && (s[end]|0x20) <= 'z' {
			end++
		}
		if end > i+1 {
			return end
		}
	}
	if c&(letter|punct|symbolic) == 0 && !isNewline(s[i]) {
		if end := run(s, i+n, letter|mark); end > i+n {
			return end
		}
	}
	if c&(letter|mark) != 0 {
		return run(s, i, letter|mark)
	}
	word := i
	if s[i] == ' ' {
		word++
	}
	if end := run(s, word, punct|symbolic); end > word {
		return runNewlines(s, end)
	}
	return scanSpaces(s, i, true)
}

// scanRest implements ` ?[^\s\p{L}\p{N}]+` followed by characters of tail, or otherwise white
// space.
func scanRest(s string, i int, tail string) int {
	word := i
	if s[i] == ' ' {
		word++
	}
	end := runOther(s, word, letter|number|space)
	if end == word {
		return scanSpaces(s, i, true)
	}
	for end < len(s) && strings.IndexByte(tail, s[end]) >= 0 {
		end++
	}
	return end
}

// scanSpaces implements `\s*[\r\n]+|\s+(?!\S)|\s+`, without the first part unless newlines is set.
// So white space ends with its last line end. Without a line end it leaves its last character to
// the word that follows, unless it has only that character.
func scanSpaces(s string, i int, newlines bool) int {
	end, last, line := i, i, i
	for end < len(s) {
		c, n := classAt(s, end)
		if c&space == 0 {
			break
		}
		last = end
		if end += n; isNewline(s[last]) {
			line = end
		}
	}
	switch {
	case newlines && line > i:
		return line
	case end < len(s) && last > i:
		return last
	}
	return end
}

func scanNumbers(s string, i, most int) int {
	for ; most > 0 && i < len(s); most-- {
		c, n := classAt(s, i)
		if c&number == 0 {
			break
		}
		i += n
	}
	return i
}

func scanHan(s string, i int) int {
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if (r < '一' || r > '龥') && (r < 0x3040 || r > 0x30FF) {
			break
		}
		i += n
	}
	return i
}

// scanWords implements `\w+|[^\w\s]+`.
func scanWords(s string, i int) int {
	end := i
	var word bool
	for end < len(s) {
		r, n := utf8.DecodeRuneInString(s[end:])
		is := IsWord(r)
		if end == i {
			word = is
		}
		if c, _ := classAt(s, end); is != word || c&space != 0 {
			break
		}
		end += n
	}
	return end
}

// scanContraction implements foldedContractions at an apostrophe.
func scanContraction(s string, i int) int {
	rest := s[i+1:]
	if rest == "" {
		return i
	}
	switch rest[0] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if len(rest) > 1 && rest[1]|0x20 == 'e' {
			return i + 3
		}
	case 'l':
		if len(rest) > 1 && rest[1]|0x20 == 'l' {
			return i + 3
		}
	}
	if strings.HasPrefix(rest, "ſ") {
		return i + 1 + len("ſ")
	}
	return i
}

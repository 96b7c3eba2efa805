package postprocess

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reference cuts the whole text at the first position at which any stop string ends.
func reference(stops []string, text string) (answer, matched string) {
	for end := range len(text) + 1 {
		for _, stop := range stops {
			if stop != "" && strings.HasSuffix(text[:end], stop) && len(stop) > len(matched) {
				matched = stop
			}
		}
		if matched != "" {
			return text[:end-len(matched)], matched
		}
	}
	return text, ""
}

// mayStillMatch returns the length of the longest suffix of text that a stop string begins with.
func mayStillMatch(stops []string, text string) int {
	longest := 0
	for _, stop := range stops {
		for n := longest + 1; n < len(stop) && n <= len(text); n++ {
			if strings.HasSuffix(text, stop[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// check reads pieces with a StopMatcher and compares the output with the reference after each
// piece.
func check(t *testing.T, stops, pieces []string) {
	t.Helper()
	m := NewStopMatcher(stops)
	valid := !slices.ContainsFunc(slices.Concat(stops, pieces), func(s string) bool { return !utf8.ValidString(s) })
	var shown, read strings.Builder
	var matched string
	for _, piece := range pieces {
		wasDone := matched != ""
		emit, match, done := m.Next(piece)
		shown.WriteString(emit)
		if wasDone && (emit != "" || match != matched || !done) {
			t.Fatalf("after the end Next(%q) = %q, %q, %v", piece, emit, match, done)
		}
		if done != (match != "") {
			t.Fatalf("Next(%q) = %q, %q, %v", piece, emit, match, done)
		}
		if valid && !utf8.ValidString(emit) {
			t.Fatalf("Next(%q) split a character: %q", piece, emit)
		}
		matched = match
		read.WriteString(piece)
		answer, wantMatch := reference(stops, read.String())
		if matched != wantMatch {
			t.Fatalf("stops %q, text %q: matched %q, want %q", stops, read.String(), matched, wantMatch)
		}
		if matched == "" {
			answer = answer[:len(answer)-mayStillMatch(stops, answer)]
		}
		if shown.String() != answer {
			t.Fatalf("stops %q, text %q: emitted %q so far, want %q", stops, read.String(), shown.String(), answer)
		}
	}
	shown.WriteString(m.Flush())
	if answer, _ := reference(stops, read.String()); shown.String() != answer {
		t.Fatalf("stops %q, pieces %q: emitted %q in all, want %q", stops, pieces, shown.String(), answer)
	}
	if again := m.Flush(); again != "" {
		t.Fatalf("a second Flush returned %q", again)
	}
}

func TestAnswerEndsBeforeStopString(t *testing.T) {
	for name, tc := range map[string]struct {
		stops   []string
		pieces  []string
		answer  string
		matched string
	}{
		"inside a piece":                    {[]string{"STOP"}, []string{"one STOP two"}, "one ", "STOP"},
		"across pieces":                     {[]string{"STOP"}, []string{"one S", "T", "", "OP two", "three"}, "one ", "STOP"},
		"at the start":                      {[]string{"STOP"}, []string{"ST", "OP"}, "", "STOP"},
		"at the very end":                   {[]string{"STOP"}, []string{"one ST", "OP"}, "one ", "STOP"},
		"partial, then something else":      {[]string{"STOP"}, []string{"ST", "ALE"}, "STALE", ""},
		"partial, then the end":             {[]string{"STOP"}, []string{"one STO"}, "one STO", ""},
		"partial within partial":            {[]string{"aab"}, []string{"a", "a", "a", "b"}, "a", "aab"},
		"one is a prefix of another":        {[]string{"STOPPED", "STOP"}, []string{"x STOPPED"}, "x ", "STOP"},
		"one is a suffix of another":        {[]string{"bc", "abc"}, []string{"x a", "bc"}, "x ", "abc"},
		"one lies within another":           {[]string{"abcd", "bc"}, []string{"abcd"}, "a", "bc"},
		"overlapping":                       {[]string{"abab", "babb"}, []string{"abab", "b"}, "", "abab"},
		"the first of two":                  {[]string{"\n\n", "END"}, []string{"a\n", "\nEND"}, "a", "\n\n"},
		"Korean":                            {[]string{"그만"}, []string{"이제 그", "만 하자"}, "이제 ", "그만"},
		"Korean that shares its first byte": {[]string{"그만"}, []string{"근처", "그", "녀"}, "근처그녀", ""},
		"emoji":                             {[]string{"👩‍💻"}, []string{"hi 👩", "\u200d", "💻!"}, "hi ", "👩‍💻"},
		"part of an emoji sequence":         {[]string{"👩‍💻"}, []string{"hi 👩", "\u200d", "🚀!"}, "hi 👩\u200d🚀!", ""},
		"twice the same":                    {[]string{"x", "x"}, []string{"abx"}, "ab", "x"},
		"an empty one is ignored":           {[]string{""}, []string{"ab", "c"}, "abc", ""},
		"none":                              {nil, []string{"ab", "c"}, "abc", ""},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, tc.stops, tc.pieces)
			m := NewStopMatcher(tc.stops)
			var got, matched string
			for _, piece := range tc.pieces {
				var emit string
				emit, matched, _ = m.Next(piece)
				got += emit
			}
			if got += m.Flush(); got != tc.answer || matched != tc.matched {
				t.Errorf("got %q, %q, want %q, %q", got, matched, tc.answer, tc.matched)
			}
		})
	}
}

// split cuts text into pieces between characters; some pieces are empty.
func split(r *rand.Rand, text string) []string {
	var pieces []string
	start := 0
	for i := range text {
		for i > start && r.IntN(3) == 0 {
			pieces = append(pieces, text[start:i])
			start = i
			if r.IntN(8) > 0 {
				break
			}
		}
	}
	return append(pieces, text[start:])
}

func TestAnyCutOfAnyTextGivesReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alphabets := []string{"ab", "abc", "a그근", "\n <|im_end|>", "👩\u200d💻🚀"}
	random := func(alphabet []rune, length int) string {
		s := make([]rune, length)
		for i := range s {
			s[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(s)
	}
	for range 20_000 {
		alphabet := []rune(alphabets[r.IntN(len(alphabets))])
		var stops []string
		for range r.IntN(5) {
			stops = append(stops, random(alphabet, 1+r.IntN(6)))
		}
		check(t, stops, split(r, random(alphabet, r.IntN(40))))
	}
}

func FuzzMatcherAgreesWithReference(f *testing.F) {
	f.Add("ab|bc", "xxabcab", uint64(1))
	f.Add("aab|a그", "aaa그b", uint64(7))
	f.Add("\xff\xfe|\x80", "a\xff\x80", uint64(3))
	f.Fuzz(func(t *testing.T, stops, text string, seed uint64) {
		if len(stops) > 100 || len(text) > 300 {
			t.Skip("the reference is slow")
		}
		list := strings.Split(stops, "|")
		check(t, list[:min(len(list), 16)], split(rand.New(rand.NewPCG(seed, 0)), text))
	})
}

func TestHeldBackIsBounded(t *testing.T) {
	stop := strings.Repeat("a", 1000) + "b"
	m := NewStopMatcher([]string{stop})
	for range 100_000 {
		m.Next("a")
		if m.held.len() >= len(stop) || cap(m.held.buf) > 4*len(stop) {
			t.Fatalf("held back %d bytes in %d", m.held.len(), cap(m.held.buf))
		}
	}
}

func TestNothingIsAllocatedWithoutPartialMatch(t *testing.T) {
	pieces := []string{"Hello", ", ", "world", " 안녕", "\n"}
	for name, stops := range map[string][]string{"no stops": nil, "stops": {"<|im_end|>", "STOP"}} {
		m := NewStopMatcher(stops)
		if n := testing.AllocsPerRun(100, func() {
			for _, piece := range pieces {
				m.Next(piece)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	prose := strings.SplitAfter(strings.Repeat("It is a truth universally acknowledged, that a token is short. ", 16), " ")
	sixteen := []string{"<|im_end|>", "<|eot_id|>", "</s>", "\n\n", "User:", "###", "STOP", "END", "Q:", "A:", "```", "Human:",
		"Observation:", "그만", "。", "🛑"}
	for _, bc := range []struct {
		name   string
		stops  []string
		pieces []string
	}{
		{"NoStops", nil, prose},
		{"OneStop", []string{"\n\nUser:"}, prose},
		{"SixteenStops", sixteen, prose},
		{"PartialMatchEverywhere", []string{"a token is long"}, prose},
		{"WorstCase", []string{strings.Repeat("a", 1000) + "b"}, slices.Repeat([]string{"aaaa"}, 256)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			var size int64
			for _, piece := range bc.pieces {
				size += int64(len(piece))
			}
			b.SetBytes(size)
			b.ReportAllocs()
			m := NewStopMatcher(bc.stops)
			for b.Loop() {
				for _, piece := range bc.pieces {
					m.Next(piece)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(bc.pieces)), "ns/piece")
		})
	}
}

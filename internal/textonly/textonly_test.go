package textonly

import (
	"slices"
	"strings"
	"testing"
)

func TestWordsCountAndComparePrompts(t *testing.T) {
	if got := Words(""); len(got) != 0 {
		t.Error(got)
	}
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 20)
	words := Words(text)
	if len(words) != (len(text)+3)/4 {
		t.Errorf("%d words of %d bytes", len(words), len(text))
	}
	different := map[uint32]bool{}
	for _, w := range words {
		if w >= VocabSize {
			t.Fatalf("word %d", w)
		}
		different[w] = true
	}
	if len(different) < 40 {
		t.Errorf("only %d different words", len(different))
	}
	if longer := Words(text + "And more."); !slices.Equal(longer[:len(words)-1], words[:len(words)-1]) {
		t.Error("a common beginning has other words")
	}
	if slices.Equal(Words("abcd"), Words("abce")) {
		t.Error("different texts have the same words")
	}
}

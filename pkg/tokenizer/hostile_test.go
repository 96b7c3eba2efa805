package tokenizer

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestHostileTextTakesLittleTime: long texts of one kind make backtracking and naive merging
// quadratic.
func TestHostileTextTakesLittleTime(t *testing.T) {
	const size = 100_000
	hostile := map[string]string{
		"spaces":          strings.Repeat(" ", size),
		"spaces, a word":  strings.Repeat(" ", size) + "x",
		"letters":         strings.Repeat("a", size),
		"capitals":        strings.Repeat("A", size),
		"line ends":       strings.Repeat("\n", size),
		"space, line end": strings.Repeat(" \n", size/2),
		"digits":          strings.Repeat("1", size),
		"dots":            strings.Repeat(".", size),
		"apostrophes":     strings.Repeat("'", size),
		"marks":           "e" + strings.Repeat("\u0301\u0327", size/4),
		"special, begun":  strings.Repeat("<|im_", size/5),
		"emoji":           strings.Repeat("👩‍💻", size/11),
		"words":           strings.Repeat(" the lazy dog", size/13),
	}
	whole := tiny(t)
	for name, text := range hostile {
		expectFast(t, name, whole, text)
	}
	for _, file := range []string{"fallback", "unfused", "capitals", "three", "digits", "plain"} {
		tok := loadFile(t, filepath.Join("testdata", file+".json"))
		for name, text := range hostile {
			expectFast(t, name+" with "+file, tok, strings.ToValidUTF8(text[:len(text)/4], ""))
		}
	}
}

// expectFast has a generous limit for slow machines: the work takes some milliseconds, and
// quadratic work would take minutes.
func expectFast(t *testing.T, name string, tok *Tokenizer, text string) {
	t.Helper()
	start := time.Now()
	ids := tok.Encode(text, true)
	encoded := time.Since(start)
	tok.Decode(ids, false)
	if all := time.Since(start); all > 3*time.Second {
		t.Errorf("%s took %v, of which Encode took %v", name, all, encoded)
	}
}

package openai

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzCustomInput: the input is the same however its arguments are cut, and equals that of
// encoding/json.
func FuzzCustomInput(f *testing.F) {
	f.Add("a\n\"b\" \\ é😀\u2028<", 1)
	f.Fuzz(func(t *testing.T, input string, size int) {
		if !utf8.ValidString(input) {
			return
		}
		size = 1 + max(0, size)%7
		arguments, err := json.Marshal(map[string]string{"input": input})
		if err != nil {
			t.Fatal(err)
		}
		var c customInput
		var got, piece strings.Builder
		for i, r := range string(arguments) {
			if i > 0 && i%size == 0 {
				got.WriteString(c.next(piece.String()))
				piece.Reset()
			}
			piece.WriteRune(r)
		}
		if got.WriteString(c.next(piece.String())); got.String() != input {
			t.Errorf("%s in pieces of %d: %q", arguments, size, got.String())
		}
	})
}

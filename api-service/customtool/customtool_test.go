package customtool_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/whence-dev/whence/api-service/customtool"
)

// FuzzInput: the text is the same however its arguments are cut, and equals that of encoding/json.
func FuzzInput(f *testing.F) {
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
		var c customtool.Input
		var got, piece strings.Builder
		for i, r := range string(arguments) {
			if i > 0 && i%size == 0 {
				got.WriteString(c.Add(piece.String()))
				piece.Reset()
			}
			piece.WriteRune(r)
		}
		if got.WriteString(c.Add(piece.String()) + c.End()); got.String() != input || customtool.Text(string(arguments)) != input || customtool.Text(customtool.Arguments(input)) != input {
			t.Errorf("%s in pieces of %d: %q", arguments, size, got.String())
		}
	})
}

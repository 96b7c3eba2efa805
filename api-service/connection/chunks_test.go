package connection

import (
	"bytes"
	"errors"
	"io"
	"net/http/httputil"
	"strings"
	"testing"
)

// decodeAll decodes a body that arrives in pieces of a size, into a buffer of a size. It returns the
// data, and the number of bytes that the body has taken.
func decodeAll(c *chunks, src []byte, piece, room int) (data []byte, taken int, err error) {
	dst := make([]byte, room)
	for taken < len(src) && c.state != complete {
		n, put, err := c.decode(dst, src[taken:min(len(src), taken+piece)])
		data, taken = append(data, dst[:put]...), taken+n
		if err != nil {
			return data, taken, err
		}
	}
	if c.state != complete {
		err = io.ErrUnexpectedEOF
	}
	return data, taken, err
}

func TestChunkedBodies(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		body, data string
		err        error
	}{
		"empty":               {"0\r\n\r\n", "", nil},
		"one":                 {"5\r\nhello\r\n0\r\n\r\n", "hello", nil},
		"hexadecimal":         {"00A\r\n0123456789\r\n0\r\n\r\n", "0123456789", nil},
		"line ends in data":   {"4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", nil},
		"an extension":        {"5;a=b;c=\"d e\"\r\nhello\r\n0;last\r\n\r\n", "hello", nil},
		"space after a size":  {"5 \t; a\r\nhello\r\n0 \r\n\r\n", "hello", nil},
		"a trailer":           {"1\r\nx\r\n0\r\nX-Sum: 1\r\nX-Empty:\r\n\r\n", "x", nil},
		"no size":             {"\r\n", "", errBrokenChunks},
		"a word":              {"xyz\r\n", "", errBrokenChunks},
		"a huge size":         {"ffffffffffffffff\r\n", "", errBrokenChunks},
		"no line end":         {"1\r\nxx\r\n", "x", errBrokenChunks},
		"a bare LF":           {"1\nx\n0\n\n", "", errBrokenChunks},
		"a bare CR":           {"1\rx", "", errBrokenChunks},
		"LF in an extension":  {"1;a\nb\r\nx\r\n0\r\n\r\n", "", errBrokenChunks},
		"NUL in an extension": {"1;a\x00\r\nx\r\n0\r\n\r\n", "", errBrokenChunks},
		"a folded trailer":    {"0\r\nA: b\r\n c\r\n\r\n", "", errBrokenChunks},
		"a trailer, no colon": {"0\r\nAbc\r\n\r\n", "", errBrokenChunks},
		"cut":                 {"5\r\nhel", "hel", io.ErrUnexpectedEOF},
		"a long size":         {strings.Repeat("0", 1<<20), "", errFraming},
		"a long extension":    {"1;" + long, "", errFraming},
		"many extensions":     {strings.Repeat("1;"+strings.Repeat("e", 100)+"\r\nx\r\n", 1000), "", errFraming},
		"a long trailer":      {"0\r\nX: " + long, "", errTrailerTooLarge},
		"a long name":         {"0\r\n" + long, "", errTrailerTooLarge},
		"many trailers":       {"0\r\n" + strings.Repeat("X: 1\r\n", MaxFields+1), "", errTrailerTooLarge},
		"the last trailer":    {"0\r\n" + strings.Repeat("X: 1\r\n", MaxFields) + "\r\n", "", nil},
		"many small chunks":   {strings.Repeat("1\r\nx\r\n", 10000) + "0\r\n\r\n", strings.Repeat("x", 10000), nil},
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			data, taken, err := decodeAll(new(chunks), []byte(c.body), piece, 5)
			if c.err != errFraming && string(data) != c.data || !errors.Is(err, c.err) { //nolint:errorlint // of the table
				t.Errorf("%s, in pieces of %d: %.40q %v, want %.40q %v", name, piece, data, err, c.data, c.err)
			}
			if err != nil && taken > MaxHeader+maxFraming {
				t.Errorf("%s, in pieces of %d: %d bytes are taken", name, piece, taken)
			}
			if err == nil && taken != len(c.body) {
				t.Errorf("%s: %d of %d bytes are taken", name, taken, len(c.body))
			}
		}
	}
}

// FuzzChunks checks that the pieces in which a body arrives change nothing, that bytes after the body
// are not taken, and that net/http reads the same data. It refuses white space before an extension,
// which RFC 9112 allows.
func FuzzChunks(f *testing.F) {
	for _, body := range []string{"5\r\nhello\r\n0\r\n\r\n", "1;a=\"b\"\r\nx\r\n0\r\nA: b\r\n\r\nGET", "0\r\n\r\n", "a\r\n", "1 \r\nx\r\n00\r\nX:\r\n\r\n"} {
		f.Add([]byte(body), uint8(1), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, piece, room uint8) {
		whole, taken, err := decodeAll(new(chunks), body, len(body)+1, len(body)+1)
		data, n, other := decodeAll(new(chunks), body, int(piece)+1, int(room)+1)
		if !bytes.Equal(whole, data) || taken != n || !errors.Is(other, err) {
			t.Fatalf("whole: %q %d %v; in pieces: %q %d %v", whole, taken, err, data, n, other)
		}
		if err != nil {
			return
		}
		theirs, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(body[:taken])))
		if err == nil && !bytes.Equal(theirs, whole) {
			t.Errorf("net/http reads %q, %v; want %q", theirs, err, whole)
		}
	})
}

package client

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// frames reads to the end; each frame is "id|event|data".
func frames(in io.Reader) (all []string, retry time.Duration, err error) {
	r := newSSE(in)
	for {
		f, err := r.next()
		if err != nil {
			return all, r.retry, err
		}
		all = append(all, f.id+"|"+f.event+"|"+string(f.data))
	}
}

var grammar = map[string]struct {
	text  string
	want  []string
	retry time.Duration
}{
	"LF":                     {"data: a\n\ndata: b\n\n", []string{"||a", "||b"}, 0},
	"CRLF":                   {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"||a", "||b"}, 0},
	"CR":                     {"data: a\r\rdata: b\r\r", []string{"||a", "||b"}, 0},
	"mixed line ends":        {"data: a\r\n\ndata: b\n\r\ndata: c\r\n\r", []string{"||a", "||b", "||c"}, 0},
	"many data lines":        {"data: a\r\ndata:\r\ndata: b\r\n\r\n", []string{"||a\n\nb"}, 0},
	"comments":               {": ping\n\ndata: a\n: ping\n\n:\n\ndata: b\n\n", []string{"||a", "||b"}, 0},
	"no space, many spaces":  {"data:a\n\ndata:  b: c\n\ndata\n\n", []string{"||a", "|| b: c", "||"}, 0},
	"byte order mark":        {"\ufeffdata: a\n\n\ufeffdata: b\n\n", []string{"||a"}, 0},
	"unfinished last event":  {"data: a\n\ndata: b\n", []string{"||a"}, 0},
	"ids outlive, names not": {"id: e.1\nevent: delta\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", []string{"e.1|delta|a", "e.1||b", "||c"}, 0},
	"an id with NUL":         {"id: 8\n\nid: 9\x00\ndata: a\n\n", []string{"8||a"}, 0},
	"a name without data":    {"event: x\n\ndata: a\n\n", []string{"||a"}, 0},
	"retry":                  {"retry: 10\n\nretry: 1e3\nretry: -5\nretry:\nretry: 99999999999999\ndata: a\n\n", []string{"||a"}, 10 * time.Millisecond},
}

func TestGrammarIsThatOfTheStandard(t *testing.T) {
	for name, c := range grammar {
		for at := range len(c.text) + 1 {
			in := io.MultiReader(strings.NewReader(c.text[:at]), strings.NewReader(c.text[at:]))
			if got, retry, err := frames(in); !reflect.DeepEqual(got, c.want) || retry != c.retry || !errors.Is(err, io.EOF) {
				t.Errorf("%s, split at %d: %q %v %v", name, at, got, retry, err)
			}
		}
	}
}

func TestEventComesWithItsLastByte(t *testing.T) {
	in, out := io.Pipe()
	defer in.Close()
	go func() { _, _ = out.Write([]byte("data: a\r\n\r")) }() // the final LF never arrives
	if f, err := newSSE(in).next(); err != nil || string(f.data) != "a" {
		t.Error(f, err)
	}
}

func TestEndlessEventIsRefused(t *testing.T) {
	endless := func(part string) error {
		_, _, err := frames(io.MultiReader(strings.NewReader("data: "), strings.NewReader(strings.Repeat(part, 2*maxEvent/len(part)))))
		return err
	}
	for _, part := range []string{"x", strings.Repeat("x", 1000) + "\ndata: "} {
		if err := endless(part); !errors.Is(err, errLarge) {
			t.Errorf("%.20q: %v", part, err)
		}
	}
}

func FuzzSSE(f *testing.F) {
	for _, c := range grammar {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, retry, err := frames(bytes.NewReader(b))
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		slowly, again, _ := frames(iotest.OneByteReader(bytes.NewReader(b)))
		if !reflect.DeepEqual(whole, slowly) || retry != again {
			t.Fatalf("%q, %v; byte by byte %q, %v", whole, retry, slowly, again)
		}
	})
}

func BenchmarkSSE(b *testing.B) {
	text := strings.Repeat("id: abcdefghij.123\nevent: delta\ndata: {\"text\":\" token\"}\n\n", 1000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if all, _, _ := frames(strings.NewReader(text)); len(all) != 1000 {
			b.Fatal(len(all))
		}
	}
}

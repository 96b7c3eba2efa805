package tokenizer

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// english is some 12 kB of prose.
func english(b *testing.B) string {
	b.Helper()
	var text strings.Builder
	for _, name := range []string{"README.md", "EVAL.md"} {
		data, err := os.ReadFile(filepath.Join("..", "whencetiny", name))
		if err != nil {
			b.Fatal(err)
		}
		text.Write(data)
	}
	return text.String()
}

// A tokenizer.json named by WHENCE_TOKENIZER is measured instead of the file in testdata.
func benchFile(b *testing.B, name string) *Tokenizer {
	b.Helper()
	if file := os.Getenv("WHENCE_TOKENIZER"); file != "" {
		return loadFile(b, file)
	}
	if name == "whencetiny" {
		return tiny(b)
	}
	return loadFile(b, filepath.Join("testdata", name+".json"))
}

// rare is 1 MB of words of which few come twice, so that no cache helps.
func rare() string {
	r := rand.New(rand.NewPCG(9, 10))
	var text strings.Builder
	for text.Len() < 1<<20 {
		for range 3 + r.IntN(8) {
			text.WriteByte('a' + byte(r.IntN(26)))
		}
		text.WriteByte(' ')
	}
	return text.String()
}

func BenchmarkEncode(b *testing.B) {
	for _, name := range []string{"whencetiny", "capitals", "three", "fallback"} {
		for kind, text := range map[string]string{"english": english(b), "rare words": rare()} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				tok := benchFile(b, name)
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					tok.Encode(text, false)
				}
			})
		}
	}
}

// BenchmarkDecoder measures one Next a token, as a stream does.
func BenchmarkDecoder(b *testing.B) {
	for _, name := range []string{"whencetiny", "fallback", "unfused"} {
		for kind, text := range map[string]string{"english": english(b), "emoji": strings.Repeat("👩‍💻 🙂", 500)} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				tok := benchFile(b, name)
				ids := tok.Encode(text, false)
				b.ReportAllocs()
				n := 0
				d := tok.NewDecoder(true)
				for b.Loop() {
					d.Next(ids[n%len(ids)])
					n++
				}
			})
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	data, err := os.ReadFile(filepath.Join("..", "whencetiny", "model", "tokenizer.json"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		load(b, data)
	}
}

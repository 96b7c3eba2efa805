package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// english returns about 12 kB of prose.
func english(b *testing.B) string {
	b.Helper()
	var text strings.Builder
	for _, name := range []string{"README.md", "EVAL.md"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "internal", "whencetiny", name))
		if err != nil {
			b.Fatal(err)
		}
		text.Write(data)
	}
	return text.String()
}

// benchFile loads the file in testdata, or the tokenizer.json named by WHENCE_TOKENIZER.
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

// rareWords returns 1 MB of words that rarely repeat, so that no cache helps.
func rareWords() string {
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
		for kind, text := range map[string]string{"english": english(b), "rareWords words": rareWords()} {
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

// BenchmarkDecoder measures one Next per token, as in a stream.
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

// BenchmarkLoad loads the embedded model's file, and a file as large as the largest of today:
// 262,144 tokens and twice as many merges.
func BenchmarkLoad(b *testing.B) {
	tiny, err := os.ReadFile(filepath.Join("..", "..", "internal", "whencetiny", "model", "tokenizer.json"))
	if err != nil {
		b.Fatal(err)
	}
	for name, data := range map[string][]byte{"tiny": tiny, "large": largeFile(b)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				load(b, data)
			}
		})
	}
}

func largeFile(b *testing.B) []byte {
	b.Helper()
	r := rand.New(rand.NewPCG(11, 12))
	vocab := map[string]uint32{}
	var tokens []string
	add := func(token string) {
		if _, ok := vocab[token]; !ok {
			vocab[token] = uint32(len(tokens))
			tokens = append(tokens, token)
		}
	}
	for letter := 'a'; letter <= 'z'; letter++ {
		add(string(letter))
	}
	var merges [][2]string
	for len(tokens) < 1<<18 || len(merges) < 1<<19 {
		left, right := tokens[r.IntN(min(len(tokens), 4000))], tokens[r.IntN(min(len(tokens), 4000))]
		if _, ok := vocab[left+right]; !ok && len(tokens) == 1<<18 || len(left+right) > 16 {
			left, right = tokens[r.IntN(26)], tokens[r.IntN(26)] // known by now
		}
		add(left + right)
		merges = append(merges, [2]string{left, right})
	}
	data, err := json.Marshal(map[string]any{"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": merges}})
	if err != nil {
		b.Fatal(err)
	}
	return data
}

package guide

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// largeVocabulary has 128,000 tokens that resemble those of a large model: all bytes, and words and
// signs with and without a space before them. WHENCE_TOKENIZER names a real tokenizer.json instead.
func largeVocabulary(b *testing.B) *Vocabulary {
	b.Helper()
	if file := os.Getenv("WHENCE_TOKENIZER"); file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		tok, err := tokenizer.Load(data)
		if err != nil {
			b.Fatal(err)
		}
		v, err := NewVocabulary(tok)
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
	var spelled []string
	seen := map[string]bool{}
	add := func(text string) {
		if !seen[text] {
			seen[text], spelled = true, append(spelled, text)
		}
	}
	for i := range 256 {
		add(string([]byte{byte(i)}))
	}
	r := rand.New(rand.NewPCG(1, 1))
	draw := func(from []string, n int) string {
		var text strings.Builder
		for range n {
			text.WriteString(from[r.IntN(len(from))])
		}
		return text.String()
	}
	letters := strings.Split("eeeetttaaooiinnsshhrrdlcumwfgypbvkETAOINS", "")
	others := strings.Split("абвгдежзийклмн한국어日本語中文ءآأإ", "")
	signs := strings.Split("\"\"':;,.!?()[]{}<>/\\|-_=+*&^%$#@~`  \n\t", "")
	for len(spelled) < 128_000 {
		var text string
		switch kind := r.IntN(20); {
		case kind < 14:
			text = draw(letters, 2+r.IntN(8))
		case kind < 17:
			text = draw(others, 1+r.IntN(5))
		case kind < 18:
			text = draw(others, 1)[1:] // a part of a character
		default:
			text = draw(signs, 1+r.IntN(4))
		}
		if r.IntN(2) == 0 {
			text = " " + text
		}
		add(text)
	}
	v, err := spell(spelled)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// BenchmarkToken is the cost of the tokens of an answer, which a new matcher writes one byte at a
// time. "µs/worst" is the slowest token of the fastest answer.
func BenchmarkToken(b *testing.B) {
	v := largeVocabulary(b)
	ids := map[string]uint32{}
	for id, text := range v.spelled {
		ids[text] = uint32(id)
	}
	object := func(property string) *llmv1.Guide {
		return forms(`{"type":"object","properties":{"a":` + property + `},"required":["a"],"additionalProperties":false}`)
	}
	for name, c := range map[string]struct {
		guide  *llmv1.Guide
		answer string
	}{
		"string":         {object(`{"type":"string"}`), `{"a":"The cat sat on the mat.\nIt was \"한\"."}`},
		"bounded-string": {object(`{"type":"string","minLength":3,"maxLength":200}`), `{"a":"The cat sat on the mat.\nIt was \"한\"."}`},
		"person":         {forms(person), `{"name":"Ann Lee", "age": 30, "kind":"cat","tags":["a","b"],"friend":null}`},
		"reasoning":      {&llmv1.Guide{FreeUntil: "</think>", Forms: forms(`{}`).GetForms()}, "so a <b> is </think>{\"a\":[1,2]}"},
		"any":            {forms(`{}`), `{"a":[1,2.5,"x",{"b":null}]}`},
	} {
		b.Run(name, func(b *testing.B) {
			g, err := New(v, c.guide)
			if err != nil {
				b.Fatal(err)
			}
			logits := make([]float32, len(v.spelled))
			worst, tokens := time.Hour, 0
			b.ReportAllocs()
			for b.Loop() {
				m, slowest := g.Matcher(), time.Duration(0)
				for i := range len(c.answer) {
					begun := time.Now()
					m.Apply(logits, 1000, nil)
					if err := m.Advance(ids[c.answer[i:i+1]]); err != nil {
						b.Fatal(err)
					}
					slowest = max(slowest, time.Since(begun))
					tokens++
				}
				worst = min(worst, slowest)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1e3/float64(tokens), "µs/token")
			b.ReportMetric(float64(worst.Nanoseconds())/1e3, "µs/worst")
		})
	}
}

func BenchmarkNew(b *testing.B) {
	v := largeVocabulary(b)
	for name, g := range map[string]*llmv1.Guide{
		"person":    forms(person),
		"reasoning": {FreeUntil: "</think>", Forms: forms(`{}`).GetForms()},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := New(v, g); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package sample

import (
	"encoding/json"
	"io/fs"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/guide"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// guided draws an answer from random logits under a schema.
func guided(t *testing.T, schema string, p *llmv1.Sampling, seed uint64) (text string, last Choice, tokens int) {
	t.Helper()
	b, err := fs.ReadFile(whencetiny.FS(), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	v, err := guide.NewVocabulary(tok)
	if err != nil {
		t.Fatal(err)
	}
	g, err := guide.New(v, &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: schema}}})
	if err != nil {
		t.Fatal(err)
	}
	const eos = 1535
	s := New(p, Sequence{EOS: []uint32{eos}, Vocab: tok.VocabSize(), Room: 60, Guide: g.Matcher()})
	r := rand.New(rand.NewPCG(seed, 2))
	var ids []uint32
	for last.Finish == llmv1.Finish_FINISH_UNSPECIFIED {
		logits := make([]float32, tok.VocabSize())
		for i := range logits {
			logits[i] = r.Float32() * 9
		}
		if last, err = s.Next(logits); err != nil {
			t.Fatal(err)
		}
		tokens++
		if !last.Hidden {
			ids = append(ids, last.Token)
		}
	}
	return tok.Decode(ids, true), last, tokens
}

func TestGuidedAnswerIsValidAndEndsWhenComplete(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"boolean"}},"required":["a","b"]}`
	for seed := range uint64(20) {
		for name, p := range map[string]*llmv1.Sampling{
			"drawn": {Seed: &seed}, "greedy": {Temperature: proto.Float32(0)},
			"asked to go on": {Seed: &seed, MinTokens: proto.Uint32(60), IgnoreEos: true},
			"biased":         {Seed: &seed, LogitBias: map[uint32]float32{1535: 100}},
		} {
			text, last, tokens := guided(t, schema, p, seed)
			var v struct {
				A *string
				B *bool
			}
			if err := json.Unmarshal([]byte(text), &v); err != nil || v.A == nil || v.B == nil || last.Finish != llmv1.Finish_FINISH_STOP || tokens > 60 {
				t.Fatalf("%s: %q, %+v after %d tokens: %v", name, text, last, tokens, err)
			}
		}
	}
}

func TestGuidedAnswerThatMayContinueEndsAtItsStopToken(t *testing.T) {
	text, last, _ := guided(t, `{"type":"integer"}`, &llmv1.Sampling{LogitBias: map[uint32]float32{1535: 50}, Temperature: proto.Float32(0)}, 1)
	if len(text) == 0 || len(text) > 2 || !last.Hidden || !json.Valid([]byte(text)) {
		t.Errorf("%q, %+v", text, last)
	}
}

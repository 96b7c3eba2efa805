package tinyllama

import (
	"fmt"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
)

// endless returns a request for n greedy tokens after a prompt of this length.
func endless(prompt, n int) *workerv1.TokenRequest {
	req := &workerv1.TokenRequest{Sampling: &llmv1.Sampling{
		Temperature: new(float32(0)), MaxTokens: new(uint32(n)), IgnoreEos: true,
	}}
	for i := range prompt {
		req.Prompt = append(req.Prompt, uint32(300+i*7%1000))
	}
	return req
}

// BenchmarkDecode measures one step of a batch with sequences of 20 to 220 tokens. On one thread
// tokens/s is tokens per core-second.
func BenchmarkDecode(b *testing.B) {
	for _, threads := range []int{1, 2} {
		for _, size := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("batch=%d/threads=%d", size, threads), func(b *testing.B) {
				b.ReportAllocs()
				m := New(tinyWeights(b), Options{Threads: threads, NoPrefixCache: true})
				var ids []uint64
				for i := range size {
					ids = append(ids, uint64(i))
				}
				var out []batch.Output
				fill := func() {
					for _, id := range ids {
						m.Leave(id)
						if err := m.Join(id, endless(20, 200)); err != nil {
							b.Fatal(err)
						}
					}
					for m.sequences[ids[size-1]].read < 20 {
						mustStep(b, m, ids[size-1:], nil)
						for _, id := range ids[:size-1] {
							if m.sequences[id].read < 20 {
								mustStep(b, m, []uint64{id}, nil)
							}
						}
					}
				}
				fill()
				steps := 0
				for b.Loop() {
					if steps++; steps%150 == 0 {
						b.StopTimer()
						fill()
						b.StartTimer()
					}
					out = mustStep(b, m, ids, out[:0])
				}
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}

// BenchmarkPrefill reads whole prompts in the chunks of Step.
func BenchmarkPrefill(b *testing.B) {
	for _, length := range []int{20, 200, 1000} {
		b.Run(fmt.Sprintf("prompt=%d", length), func(b *testing.B) {
			b.ReportAllocs()
			m := New(tinyWeights(b), Options{Threads: 1, NoPrefixCache: true})
			req, steps := endless(length, 2), 0
			for b.Loop() {
				if err := m.Join(1, req); err != nil {
					b.Fatal(err)
				}
				for m.sequences[1].read < length {
					mustStep(b, m, []uint64{1}, nil)
					steps++
				}
				m.Leave(1)
			}
			b.ReportMetric(float64(b.N*length)/b.Elapsed().Seconds(), "tokens/s")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
		})
	}
}

// BenchmarkFirstToken measures the time to first token of a prompt whose tokens are cached, except
// for the last 20.
func BenchmarkFirstToken(b *testing.B) {
	for _, prefix := range []int{100, 600} {
		for _, kept := range []bool{false, true} {
			b.Run(fmt.Sprintf("prefix=%d/kept=%v", prefix, kept), func(b *testing.B) {
				b.ReportAllocs()
				m := New(tinyWeights(b), Options{Threads: 1, NoPrefixCache: !kept})
				generate(b, m, 1, endless(prefix, 1))
				req := endless(prefix+20, 1)
				for i := 0; b.Loop(); i++ {
					for j := range 20 { // new each time
						req.Prompt[prefix+j] = uint32(300 + (i+j)%1000)
					}
					generate(b, m, 1, req)
				}
			})
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := load(tinyFS, LoadOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func mustStep(t testing.TB, m *Model, ids []uint64, out []batch.Output) []batch.Output {
	t.Helper()
	out, err := m.Step(ids, out)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

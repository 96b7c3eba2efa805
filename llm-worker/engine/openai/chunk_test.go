package openai

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/whence-dev/whence/internal/jsonscan/jsonscantest"
)

// usualChunks are events of servers.
var usualChunks = []string{
	`{"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m","choices":[{"index":0,"text":" the","logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":[262],"prompt_logprobs":null,"prompt_token_ids":[1,2]}],"usage":null}`,
	`{"id":"x","choices":[{"index":0,"text":"\ud83d\ude80\n","logprobs":{"tokens":["token_id:5"],"token_logprobs":[-0.5],"top_logprobs":[{"token_id:5":-0.5}]},"finish_reason":"length","token_ids":[]}]}`,
	`{"choices":[],"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}}`,
	`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":null},"error":null}`,
	`{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"x","reasoning":null},"finish_reason":null,"token_ids":[7]}]}`,
	`{"error":{"message":"no"}}`,
}

// FuzzChunk: a chunk is read as encoding/json reads it.
func FuzzChunk(f *testing.F) {
	f.Add([]byte(`{"choices":[{"text":"a"}],"choices":[{"token_ids":[1]}]}`))
	f.Add([]byte(`{"choices":[{"delta":{"content":"a"},"delta":{},"finish_reason":"a","finish_reason":null,"logprobs":{"tokens":["a"]},"logprobs":{}}]}`))
	scan := func(c *chunk, data []byte) bool {
		ok := c.scan(data)
		c.Choices, c.one = slices.Clone(c.Choices), [1]choice{}
		return ok
	}
	jsonscantest.Fuzz(f, scan, usualChunks...)
}

// BenchmarkChunk measures how an event is read.
func BenchmarkChunk(b *testing.B) {
	data := []byte(usualChunks[0])
	b.Run("scanner", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !new(chunk).scan(data) {
				b.Fatal()
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := json.Unmarshal(data, new(chunk)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

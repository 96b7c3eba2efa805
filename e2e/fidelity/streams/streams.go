// Package streams compares three forms of an answer: streamed, unstreamed, and the engine's own
// tokens, decoded at once.
package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/whence-dev/whence/bench"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A Row has the results of random requests.
type Row struct {
	Requests, Choices, Stopped int
	pieces                     int // choices whose streamed text, finish or tokens differed from the unstreamed ones
	engine                     int // choices whose text, finish or tokens differed from the engine's
	usage                      int // requests whose usage differed
	first                      []string
}

// Differences returns the first differences.
func (r *Row) Differences() []string { return r.first }

// maxComplaints bounds the number of printed differences.
const maxComplaints = 5

func (r *Row) complain(format string, args ...any) {
	if len(r.first) < maxComplaints {
		r.first = append(r.first, fmt.Sprintf(format, args...))
	}
}

// Table returns the row as a table with headers.
func (r *Row) Table() string {
	return fmt.Sprintf("| requests | choices | stopped by a string | streamed differs from unstreamed | differs from the engine | usage differs |\n|--:|--:|--:|--:|--:|--:|\n| %d | %d | %d | %d | %d | %d |\n%s",
		r.Requests, r.Choices, r.Stopped, r.pieces, r.engine, r.usage, strings.Join(r.first, "\n\n"))
}

// A bystander has direct access to the path's engine and tokenizer.
type bystander struct {
	path *bench.Path
	loop *batch.Loop
	tok  *tokenizer.Tokenizer
	http *http.Client
}

// Compare sends random requests to the whole path, with the embedded model.
func Compare(ctx context.Context, requests int, seed uint64) (*Row, error) {
	data, err := fs.ReadFile(whencetiny.FS(), "tokenizer.json")
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(data)
	if err != nil {
		return nil, err
	}
	weights, err := tinyllama.Load(whencetiny.FS(), tinyllama.LoadOptions{})
	if err != nil {
		return nil, err
	}
	loop := batch.New(tinyllama.New(weights, tinyllama.Options{}), batch.Options{Model: whencetiny.Name})
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		loop.Run(running)
	}()
	defer func() { stop(); <-ended }()
	path, err := bench.Start(loop.Generate)
	if err != nil {
		return nil, err
	}
	defer path.Stop()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	b := &bystander{path, loop, tok, &http.Client{Transport: transport}}
	row, r := &Row{Requests: requests}, rand.New(rand.NewPCG(seed, 17))
	for range requests {
		if err := b.compare(ctx, row, newQuestion(r)); err != nil {
			return nil, err
		}
	}
	return row, nil
}

// A question is a random request.
type question struct {
	chat     bool
	prompts  []string // a single prompt for chats
	n        int
	stops    []string
	include  bool // the stop string is part of the answer
	special  bool // special tokens are part of the answer
	sampling *llmv1.Sampling
}

func newQuestion(r *rand.Rand) *question {
	texts := []string{"The fox", "Once upon a time", "What is 2 + 3?", "Tell me a story.", "안녕 🌙", "def main():\n", "A", "<|im_start|>user\nhi<|im_end|>\n"}
	stops := []string{" the", ".", "\n", "🌙", "a", "e ", "ing", " fox", "\"", "는", " 😊", "!?"}
	q := &question{chat: r.IntN(2) == 0, n: 1 + r.IntN(3), include: r.IntN(3) == 0, special: r.IntN(4) == 0, sampling: &llmv1.Sampling{
		Temperature: new([]float32{0, 0.7, 1.5}[r.IntN(3)]), Seed: new(r.Uint64N(1 << 40)), MaxTokens: new(uint32(1 + r.IntN(40))), IgnoreEos: r.IntN(3) == 0,
	}}
	for range 1 + r.IntN(3) {
		q.prompts = append(q.prompts, texts[r.IntN(len(texts))])
	}
	if q.chat {
		q.prompts = q.prompts[:1]
	}
	for range r.IntN(3) {
		q.stops = append(q.stops, stops[r.IntN(len(stops))])
	}
	if r.IntN(2) == 0 {
		q.sampling.Logprobs = new(uint32(r.IntN(4)))
	}
	if r.IntN(3) == 0 {
		q.sampling.TopP, q.sampling.TopK, q.sampling.FrequencyPenalty = new(float32(0.9)), new(uint32(r.IntN(50))), new(float32(0.5))
	}
	return q
}

// body returns the question as the body of a request.
func (q *question) body(stream bool) map[string]any {
	s := q.sampling
	body := map[string]any{
		"model": whencetiny.Name, "n": q.n, "temperature": s.Temperature, "seed": s.Seed, "max_tokens": s.MaxTokens, "ignore_eos": s.GetIgnoreEos(), "top_p": s.TopP, "top_k": s.TopK,
		"frequency_penalty": s.FrequencyPenalty, "stop": q.stops, "include_stop_str_in_output": q.include, "skip_special_tokens": !q.special, "stream": stream,
	}
	if stream {
		body["stream_options"] = map[string]any{"include_usage": true}
	}
	switch {
	case q.chat:
		body["messages"] = []any{map[string]any{"role": "user", "content": q.prompts[0]}}
		body["logprobs"] = s.Logprobs != nil
		if s.Logprobs != nil {
			body["top_logprobs"] = s.GetLogprobs()
		}
	default:
		body["prompt"], body["logprobs"] = q.prompts, s.Logprobs
	}
	return body
}

// A clientChoice is a choice in the view of the client, or of the bystander.
type clientChoice struct {
	text, finish string
	likely       []float32
}

// A part is a response or a chunk, of chats or completions.
type part struct {
	Choices []struct {
		Index          int
		Text           string
		Message, Delta struct{ Content string }
		Logprobs       struct {
			Content []struct{ Logprob float32 }
			Likely  []float32 `json:"token_logprobs"`
		}
		Finish *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
	Error json.RawMessage
}

// hear sends a question and joins the answer.
func (b *bystander) hear(ctx context.Context, q *question, stream bool) (all []clientChoice, usage [2]int, err error) {
	body, err := json.Marshal(q.body(stream))
	if err != nil {
		return nil, usage, err
	}
	url := "http://" + b.path.Edge + "/v1/completions"
	if q.chat {
		url = "http://" + b.path.Edge + "/v1/chat/completions"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, usage, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := b.http.Do(req)
	if err != nil {
		return nil, usage, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, usage, err
	}
	datas := []string{string(answer)}
	if stream {
		datas = datas[:0]
		for event := range strings.SplitSeq(string(answer), "\n\n") {
			if data, ok := strings.CutPrefix(event, "data: "); ok && data != "[DONE]" {
				datas = append(datas, data)
			}
		}
	}
	all = make([]clientChoice, q.n*len(q.prompts))
	for _, data := range datas {
		var p part
		if err := json.Unmarshal([]byte(data), &p); err != nil || p.Error != nil {
			return nil, usage, fmt.Errorf("%s is answered with %s: %w", body, data, err)
		}
		for _, c := range p.Choices {
			h := &all[c.Index]
			h.text += c.Text + c.Message.Content + c.Delta.Content
			h.likely = append(h.likely, c.Logprobs.Likely...)
			for _, token := range c.Logprobs.Content {
				h.likely = append(h.likely, token.Logprob)
			}
			if c.Finish != nil {
				h.finish = *c.Finish
			}
		}
		if p.Usage != nil {
			usage = [2]int{p.Usage.Prompt, p.Usage.Completion}
		}
	}
	return all, usage, nil
}

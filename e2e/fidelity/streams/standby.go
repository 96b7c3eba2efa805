package streams

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// compare compares the streamed answer, the unstreamed answer, and the engine's own tokens.
func (b *bystander) compare(ctx context.Context, row *Row, q *question) error {
	pieces, piecesUsage, err := b.hear(ctx, q, true)
	if err != nil {
		return err
	}
	whole, usage, err := b.hear(ctx, q, false)
	if err != nil {
		return err
	}
	used := [2]int{}
	for i, got := range whole {
		row.Choices++
		if !got.same(pieces[i]) {
			row.pieces++
			row.complain("choice %d of %+v\n in pieces %+v\n   at once %+v", i, q, pieces[i], got)
		}
		want, prompt, completion, err := b.engine(ctx, q, i)
		if err != nil {
			return err
		}
		if i%q.n == 0 {
			used[0] += prompt
		}
		used[1] += completion
		if len(q.stops) > 0 && want.finish == "stop" {
			row.Stopped++
		}
		if !got.same(want) {
			row.engine++
			row.complain("choice %d of %+v\n got %+v\nwant %+v", i, q, got, want)
		}
	}
	// The number of tokens by which the engine was ahead of a stop string varies, but its text does
	// not.
	if usage[0] != used[0] || usage != piecesUsage && len(q.stops) == 0 || usage[1] != used[1] && len(q.stops) == 0 {
		row.usage++
		row.complain("usage of %+v: %v, in pieces %v, by the engine %v", q, usage, piecesUsage, used)
	}
	return nil
}

func (h clientChoice) same(o clientChoice) bool {
	return h.text == o.text && h.finish == o.finish && slices.Equal(h.likely, o.likely)
}

// engine returns the expected choice, from the engine's own tokens, decoded at once.
func (b *bystander) engine(ctx context.Context, q *question, choice int) (want clientChoice, prompt, completion int, err error) {
	text := q.prompts[choice/q.n]
	req := &workerv1.TokenRequest{Prompt: b.tok.Encode(text, true), Sampling: proto.CloneOf(q.sampling)}
	if q.chat {
		req.Prompt = b.tok.Encode("<|im_start|>user\n"+text+"<|im_end|>\n<|im_start|>assistant\n", false)
	}
	*req.Sampling.Seed += uint64(choice % q.n)
	var ids []uint32
	var likely []float32
	for out, err := range b.loop.Generate(ctx, req) {
		if err != nil {
			return want, 0, 0, err
		}
		ids, likely = append(ids, out.GetTokens().GetIds()...), append(likely, out.GetTokens().GetLogprobs()...)
		if end := out.GetEnd(); end != nil {
			want.finish = map[llmv1.Finish]string{llmv1.Finish_FINISH_STOP: "stop", llmv1.Finish_FINISH_LENGTH: "length"}[end.GetFinish()]
			completion = int(end.GetUsage().GetCompletionTokens())
		}
	}
	want.text, want.likely = b.tok.Decode(ids, !q.special), likely
	if end := q.cut(want.text); end >= 0 {
		want.text, want.finish = want.text[:end], "stop"
		want.likely = likely[:b.within(ids, likely, end, q.special)]
	}
	return want, len(req.GetPrompt()), completion, nil
}

// cut returns the position at which the answer ends: before the stop string that ends first, or the
// longest of several that end there; -1 without a stop string.
func (q *question) cut(text string) int {
	for end := range len(text) + 1 {
		longest := ""
		for _, stop := range q.stops {
			if strings.HasSuffix(text[:end], stop) && len(stop) > len(longest) {
				longest = stop
			}
		}
		switch {
		case longest == "":
		case q.include:
			return end
		default:
			return end - len(longest)
		}
	}
	return -1
}

// within returns the number of tokens that belong to the first size bytes of their text: the tokens
// whose text begins there. The text of the first n tokens is a prefix of the whole text, up to an
// incomplete character; so a token begins where the text of the tokens before it ends.
func (b *bystander) within(ids []uint32, likely []float32, size int, special bool) (n int) {
	if len(likely) == 0 || size == 0 {
		return 0
	}
	d := b.tok.NewDecoder(!special)
	text, last := 0, 0
	for i, id := range ids {
		if text >= size {
			break
		}
		text += len(d.Next(id))
		if text > 0 {
			last = i + 1
		}
	}
	return last
}

package streamtrace

import (
	"cmp"

	"go.opentelemetry.io/otel/attribute"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// chat is the value of gen_ai.operation.name on all hops: the conversation is the client's,
// wherever its tokens are generated.
const chat = "chat"

// Does sets the stream's operation, a value of gen_ai.operation.name, if it is not a conversation;
// "" has no effect. Does must be called before the stream runs.
func (t *Trace) Does(operation string) {
	if t != nil {
		t.operation = operation
	}
}

// name returns the name of the span.
func (t *Trace) name(r *streamv1.Record) string {
	name := cmp.Or(t.operation, chat)
	if r.GetModel() == "" {
		return name
	}
	return name + " " + r.GetModel()
}

// answerAttributes appends the attributes that the span of an answer of a language model has.
func (t *Trace) answerAttributes(all []attribute.KeyValue, r *streamv1.Record) []attribute.KeyValue {
	all = append(all,
		attribute.String("gen_ai.operation.name", cmp.Or(t.operation, chat)),
		attribute.String("gen_ai.provider.name", "whence"),
		attribute.String("whence.stream.id", r.GetStreamId()),
		attribute.Int64("whence.tokens.received", int64(r.GetTokensIn())))
	if r.GetModel() != "" {
		all = append(all,
			attribute.String("gen_ai.response.model", r.GetModel()),
			attribute.Int64("gen_ai.usage.input_tokens", int64(r.GetPromptTokens())),
			attribute.Int64("gen_ai.usage.output_tokens", int64(r.GetTokensOut())))
	}
	if r.CachedTokens != nil {
		all = append(all, attribute.Int64("gen_ai.usage.cache_read.input_tokens", int64(r.GetCachedTokens())))
	}
	if first := t.tally.FirstSent(); first > 0 {
		all = append(all, attribute.Float64("whence.time_to_first_token", first.Seconds()))
	}
	return t.requestAttributes(all, r)
}

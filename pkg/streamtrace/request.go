package streamtrace

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// A request has the names of a stream's request and of its answer that a span contains. They are
// kept only if spans are exported.
type request struct {
	Request
	Client
}

// A Request is what a hop's caller asked for.
type Request struct {
	Model   string // "" for the only one
	Choices int    // the number of answers; 0 if the stream is not one request for answers
}

// A Client is what the hop that reads a client's request knows about it.
type Client struct {
	Stream       bool   // the answer is events, not one body
	Answer       string // the answer's id in the client's API
	Conversation string // the client's own name of the conversation; "" if it gave none
	Earlier      string // the id of the answer that the request continues; "" if none
}

// maxName bounds a name that a client chose, in bytes.
const maxName = 256

// Asks sets the stream's request. It must be called before the stream runs.
func (t *Trace) Asks(r Request) {
	if t == nil || !t.shown {
		return
	}
	r.Model = bounded(r.Model)
	t.request.Request = r
}

// Serves sets the client whose request the stream answers. It must be called before the stream runs.
func (t *Trace) Serves(c Client) {
	if t == nil || !t.shown {
		return
	}
	c.Answer, c.Conversation, c.Earlier = bounded(c.Answer), bounded(c.Conversation), bounded(c.Earlier)
	t.request.Client = c
}

// bounded returns a copy of the beginning of a name, which does not keep the request's memory.
func bounded(name string) string {
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return strings.Clone(name)
}

// Finished records why a choice is complete.
func (t *Trace) Finished(choice int, finish string) {
	if t == nil || !t.shown || choice >= t.request.Choices {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finish == nil {
		t.finish = make([]string, t.request.Choices)
	}
	t.finish[choice] = finish
}

// finishes returns why each choice has ended: "error" for a choice without a finish reason, as the
// conventions say.
func (t *Trace) finishes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]string, t.request.Choices)
	copy(all, t.finish)
	for i, finish := range all {
		if finish == "" {
			all[i] = "error"
		}
	}
	return all
}

// requestAttributes appends the attributes of the request and of its answer.
func (t *Trace) requestAttributes(all []attribute.KeyValue, r *streamv1.Record) []attribute.KeyValue {
	asked := &t.request
	for _, name := range []attribute.KeyValue{
		attribute.String("gen_ai.request.model", asked.Model),
		attribute.String("gen_ai.response.id", asked.Answer),
		attribute.String("gen_ai.conversation.id", asked.Conversation),
		attribute.String("gen_ai.request.previous_response.id", asked.Earlier),
	} {
		if name.Value.AsString() != "" {
			all = append(all, name)
		}
	}
	if asked.Choices > 1 {
		all = append(all, attribute.Int("gen_ai.request.choice.count", asked.Choices))
	}
	if r.GetModel() != "" && asked.Choices > 0 { // the stream was admitted
		all = append(all, attribute.StringSlice("gen_ai.response.finish_reasons", t.finishes()))
	}
	if !asked.Stream {
		return all
	}
	all = append(all, attribute.Bool("gen_ai.request.stream", true))
	if first := t.tally.FirstSent(); first > 0 {
		all = append(all, attribute.Float64("gen_ai.response.time_to_first_chunk", first.Seconds()))
	}
	return all
}

package ollama

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An embed is a body of POST /api/embed or of the older /api/embeddings.
type embed struct {
	request *chatv1.EmbeddingsRequest
	model   string // as the client wrote it
	field   string // with the texts
	list    bool   // the input is an array
	begun   time.Time
}

type embedSetter = strict.Setter[*embed]

var sharedOfEmbed = strict.Table[*embed]{Honoured: map[string]embedSetter{
	"model": func(e *embed, param string, raw json.RawMessage) (err error) {
		e.model, err = strict.String(param, raw)
		e.request.Model = untagged(e.model)
		return err
	},
}, Ignored: []string{"keep_alive", "options"}}

var embedFields = sharedOfEmbed.And(strict.Table[*embed]{Honoured: map[string]embedSetter{
	"input": func(e *embed, param string, raw json.RawMessage) error {
		texts, err := strict.Strings(param, raw)
		if err == nil {
			err = call.CheckInputs(param, len(texts))
		}
		e.list = raw[0] == '['
		e.add(texts...)
		return err
	},
	"dimensions": func(e *embed, param string, raw json.RawMessage) (err error) {
		if !strict.Empty(raw) {
			e.request.Dimensions, err = strict.Count(param, raw, 1)
		}
		return err
	},
}, Unsupported: []string{"truncate"}}) // a text that is too long is refused

var embeddingsFields = sharedOfEmbed.And(strict.Table[*embed]{Honoured: map[string]embedSetter{
	"prompt": func(e *embed, param string, raw json.RawMessage) error {
		text, err := strict.String(param, raw)
		e.add(text)
		return err
	},
}})

// EmbedFields returns how each field of /api/embed is treated.
func EmbedFields() map[string]string { return embedFields.Fields() }

// EmbeddingsFields is EmbedFields for /api/embeddings.
func EmbeddingsFields() map[string]string { return embeddingsFields.Fields() }

func (e *embed) add(texts ...string) {
	for _, text := range texts {
		e.request.Inputs = append(e.request.Inputs, &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: text}})
	}
}

// ParseEmbed parses a body of /api/embed. Its errors are as those of ParseChat.
func ParseEmbed(text []byte, in *strict.Reading) (*call.Embeddings, error) {
	e, err := parseEmbed(text, "input", &embedFields, in)
	if err != nil {
		return nil, err
	}
	return &call.Embeddings{Request: e.request, Param: e.param, Answer: e.answer}, nil
}

// ParseEmbeddings parses a body of /api/embeddings, which has one text.
func ParseEmbeddings(text []byte, in *strict.Reading) (*call.Embeddings, error) {
	e, err := parseEmbed(text, "prompt", &embeddingsFields, in)
	if err != nil {
		return nil, err
	}
	return &call.Embeddings{Request: e.request, Param: e.param, Answer: func(resp *chatv1.EmbeddingsResponse) []byte {
		return marshal(struct {
			Embedding []float32 `json:"embedding"`
		}{resp.GetEmbeddings()[0].GetValues()})
	}}, nil
}

func parseEmbed(text []byte, field string, table *strict.Table[*embed], in *strict.Reading) (*embed, error) {
	fields, err := strict.Fields(text)
	if err != nil {
		return nil, err
	}
	e := &embed{request: &chatv1.EmbeddingsRequest{}, field: field, begun: time.Now()}
	if err := table.Parse(fields, e, in); err != nil {
		return nil, err
	}
	switch {
	case e.model == "":
		return nil, streamerr.InvalidParam("model", "model is required").WithCode(streamerr.CodeMissing)
	case len(e.request.GetInputs()) == 0:
		return nil, streamerr.InvalidParam(field, "%s is missing or empty", field).WithCode(streamerr.CodeMissing)
	}
	return e, nil
}

// param converts a field name of the IDL to its name in the body.
func (e *embed) param(inner string) string { return call.InputParam(inner, e.field, e.list) }

// answer returns the body of the answer of /api/embed.
func (e *embed) answer(resp *chatv1.EmbeddingsResponse) []byte {
	vectors := make([][]float32, len(resp.GetEmbeddings()))
	for i, v := range resp.GetEmbeddings() {
		vectors[i] = v.GetValues()
	}
	return fmt.Appendf(nil, `{"model":%s,"embeddings":%s,"total_duration":%d,"load_duration":0,"prompt_eval_count":%d}`,
		marshal(e.model), marshal(vectors), time.Since(e.begun).Nanoseconds(), resp.GetEnd().GetUsage().GetPromptTokens())
}

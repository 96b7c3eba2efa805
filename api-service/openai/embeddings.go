package openai

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Embeddings is a body of POST /v1/embeddings.
type Embeddings struct {
	Request *chatv1.EmbeddingsRequest
	Base64  bool          // vectors are strings: little-endian floats of four bytes
	Timeout time.Duration // maximum duration of the answer; 0 means no limit
	list    bool          // the input is an array
	in      *strict.Reading
}

// embeddingFields are the fields of a body.
var embeddingFields = strict.Table[*Embeddings]{Honoured: map[string]strict.Setter[*Embeddings]{
	"model": func(e *Embeddings, param string, raw json.RawMessage) (err error) {
		e.Request.Model, err = text(param, raw)
		return err
	},
	"input": func(e *Embeddings, param string, raw json.RawMessage) (err error) {
		e.Request.Inputs, e.list, err = prompts(param, raw, func(n int) error { return call.CheckInputs(param, n) })
		return err
	},
	"encoding_format": func(e *Embeddings, param string, raw json.RawMessage) error {
		format, err := text(param, raw)
		if err == nil && format != "float" && format != "base64" && format != "" {
			return unsupported(param, "%s is \"%s\"; it must be float or base64", param, printable(format))
		}
		e.Base64 = format == "base64"
		return err
	},
	"dimensions": func(e *Embeddings, param string, raw json.RawMessage) (err error) {
		if strict.Empty(raw) && !e.in.Refuses() {
			return nil
		}
		e.Request.Dimensions, err = count(param, raw, 1)
		return err
	},
	"timeout": func(e *Embeddings, param string, raw json.RawMessage) (err error) {
		e.Timeout, err = timeout(e.in, param, raw)
		return err
	},
	"service_tier": func(e *Embeddings, param string, raw json.RawMessage) (err error) {
		e.Request.Claim, err = claim(e.in, param, raw)
		return err
	},
},
	Ignored:     []string{"user", "metadata"},
	Unsupported: []string{"input_type", "priority", "request_id", "truncate", "truncate_prompt_tokens"},
}

// EmbeddingFields returns how each field of embeddings is treated.
func EmbeddingFields() map[string]string { return embeddingFields.Fields() }

// ParseEmbeddings parses a body. Its errors are as those of ParseChat.
func ParseEmbeddings(body []byte, in *strict.Reading) (*Embeddings, error) {
	fields, err := strict.Fields(body)
	if err != nil {
		return nil, err
	}
	e := &Embeddings{Request: &chatv1.EmbeddingsRequest{}, in: in}
	if err := embeddingFields.Parse(fields, e, in); err != nil {
		return nil, err
	}
	switch {
	case e.Request.GetModel() == "":
		return nil, streamerr.InvalidParam("model", "model is missing").WithCode(streamerr.CodeMissing)
	case len(e.Request.GetInputs()) == 0:
		return nil, streamerr.InvalidParam("input", "input is missing or empty").WithCode(streamerr.CodeMissing)
	}
	return e, nil
}

// Param converts a field name of the IDL, which an inner hop uses in its errors, to its name in the
// body.
func (e *Embeddings) Param(inner string) string { return call.InputParam(inner, "input", e.list) }

// Call returns the edge's view of the request.
func (e *Embeddings) Call() *call.Embeddings {
	return &call.Embeddings{Request: e.Request, Timeout: e.Timeout, Param: e.Param, Answer: e.Answer}
}

type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // []float32, or its bytes as a string
}

type embeddingUsage struct {
	PromptTokens uint32 `json:"prompt_tokens"`
	TotalTokens  uint32 `json:"total_tokens"`
}

// Answer returns the body of the answer.
func (e *Embeddings) Answer(resp *chatv1.EmbeddingsResponse) []byte {
	used := resp.GetEnd().GetUsage().GetPromptTokens()
	list := struct {
		Object string         `json:"object"`
		Data   []embedding    `json:"data"`
		Model  string         `json:"model"`
		Usage  embeddingUsage `json:"usage"`
	}{"list", make([]embedding, 0, len(resp.GetEmbeddings())), resp.GetModel(), embeddingUsage{used, used}}
	for i, v := range resp.GetEmbeddings() {
		out := embedding{Object: "embedding", Index: i, Embedding: v.GetValues()}
		if e.Base64 {
			out.Embedding = bytesOf(v.GetValues())
		}
		list.Data = append(list.Data, out)
	}
	return marshal(list)
}

func bytesOf(values []float32) string {
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return base64.StdEncoding.EncodeToString(b)
}

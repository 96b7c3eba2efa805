package openai_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestInputsOfAllFormsAreRead(t *testing.T) {
	word := func(s string) *chatv1.Prompt {
		return &chatv1.Prompt{Content: &chatv1.Prompt_Text{Text: s}}
	}
	ids := func(ids ...uint32) *chatv1.Prompt {
		return &chatv1.Prompt{Content: &chatv1.Prompt_Ids{Ids: &chatv1.TokenIDs{Ids: ids}}}
	}
	for input, c := range map[string]struct {
		want  []*chatv1.Prompt
		param string // the field that errors about the first input name
	}{
		`"a"`:         {[]*chatv1.Prompt{word("a")}, "input"},
		`["a","b"]`:   {[]*chatv1.Prompt{word("a"), word("b")}, "input[0]"},
		`[1,2]`:       {[]*chatv1.Prompt{ids(1, 2)}, "input"},
		`["a"]`:       {[]*chatv1.Prompt{word("a")}, "input[0]"},
		`[[1,2],[3]]`: {[]*chatv1.Prompt{ids(1, 2), ids(3)}, "input[0]"},
	} {
		e, err := openai.ParseEmbeddings([]byte(`{"model":"m","input":`+input+`,"encoding_format":"base64","dimensions":7,"timeout":1.5,"service_tier":"flex","user":"u"}`), nil)
		if err != nil {
			t.Fatalf("%s: %v", input, err)
		}
		want := &chatv1.EmbeddingsRequest{Model: "m", Inputs: c.want, Dimensions: proto.Uint32(7), Claim: &llmv1.Claim{Tier: llmv1.Tier_TIER_FLEX}}
		if !proto.Equal(e.Request, want) || !e.Base64 || e.Timeout != 1500*time.Millisecond || e.Param("inputs[0]") != c.param || e.Param("model") != "model" {
			t.Errorf("%s: %v, %q", input, e.Request, e.Param("inputs[0]"))
		}
	}
}

func TestInvalidEmbeddingsAreRefusedByField(t *testing.T) {
	for body, param := range map[string]string{
		``:                                 "",
		`[]`:                               "",
		`{"input":"a"}`:                    "model",
		`{"model":"m"}`:                    "input",
		`{"model":"m","input":null}`:       "input",
		`{"model":"m","input":[]}`:         "input",
		`{"model":"m","input":{}}`:         "input",
		`{"model":"m","input":true}`:       "input",
		`{"model":"m","input":["a",1]}`:    "input[1]",
		`{"model":"m","input":["a",[1]]}`:  "input[1]",
		`{"model":"m","input":[[1],"a"]}`:  "input[1]",
		`{"model":"m","input":["a",null]}`: "input[1]",
		`{"model":"m","input":[1,"a"]}`:    "input[1]",
		`{"model":"m","input":[1.5]}`:      "input[0]",
		`{"model":"m","input":[[1,-1]]}`:   "input[0][1]",
		`{"model":"m","input":"a","encoding_format":"int8"}`:              "encoding_format",
		`{"model":"m","input":"a","dimensions":0}`:                        "dimensions",
		`{"model":"m","input":"a","timeout":0}`:                           "timeout",
		`{"model":"m","input":"a","messages":[]}`:                         "messages",
		`{"model":"m","input":[` + strings.Repeat(`"a",`, 2048) + `"a"]}`: "input",
	} {
		_, err := openai.ParseEmbeddings([]byte(body), &strict.Reading{Strict: true})
		if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != param {
			t.Errorf("%.60s: %v (param %q), want %q", body, err, e.Param, param)
		}
	}
}

func FuzzParseEmbeddings(f *testing.F) {
	f.Add([]byte(`{"model":"m","input":[[1,2],"a"],"encoding_format":"float"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := openai.ParseEmbeddings(body, nil)
		if err != nil {
			if streamerr.As(err).Reason != streamerr.Invalid {
				t.Error(err)
			}
			return
		}
		if n := len(e.Request.GetInputs()); n == 0 || n > 2048 || e.Request.GetModel() == "" {
			t.Error(e.Request)
		}
	})
}

func TestVectorsAreNumbersOrTheirBytes(t *testing.T) {
	values := []float32{0.25, -1e-9, 0.1}
	resp := &chatv1.EmbeddingsResponse{
		Model: "m", Embeddings: []*llmv1.Embedding{{Values: []float32{1}}, {Values: values}},
		End: &llmv1.End{Usage: &llmv1.Usage{PromptTokens: 9}},
	}
	for _, coded := range []bool{false, true} {
		var got struct {
			Object, Model string
			Data          []struct {
				Object    string
				Index     int
				Embedding json.RawMessage
			}
			Usage map[string]int
		}
		if err := json.Unmarshal((&openai.Embeddings{Base64: coded}).Answer(resp), &got); err != nil {
			t.Fatal(err)
		}
		if got.Object != "list" || got.Model != "m" || len(got.Data) != 2 || got.Data[1].Object != "embedding" || got.Data[1].Index != 1 ||
			got.Usage["prompt_tokens"] != 9 || got.Usage["total_tokens"] != 9 {
			t.Error(got)
		}
		var read []float32
		if coded {
			var b []byte // encoding/json reads base64 itself
			if err := json.Unmarshal(got.Data[1].Embedding, &b); err != nil || len(b) != 12 {
				t.Fatal(err, base64.StdEncoding.EncodeToString(b))
			}
			for ; len(b) > 0; b = b[4:] {
				read = append(read, math.Float32frombits(binary.LittleEndian.Uint32(b)))
			}
		} else if err := json.Unmarshal(got.Data[1].Embedding, &read); err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if read[i] != v {
				t.Errorf("%v, want %v", read, values)
			}
		}
	}
}

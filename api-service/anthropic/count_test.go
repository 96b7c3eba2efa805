package anthropic_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestCountIsThatOfThePrompt(t *testing.T) {
	const fields = `"model":"m","messages":[{"role":"user","content":"Hi"}],"system":"s","thinking":{"type":"disabled"},"cache_control":{"type":"ephemeral"},
		"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"}`
	got, err := anthropic.ParseCount([]byte(`{`+fields+`}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := parser.Parse(t, `{"max_tokens":9,`+fields+`}`).Request
	want := &chatv1.TokenizeRequest{
		Model: "m", AddGenerationPrompt: true, Messages: r.GetMessages(), Tools: r.GetTools(), ToolChoice: r.GetToolChoice(), TemplateVariables: r.GetTemplateVariables(),
	}
	if !proto.Equal(got.Request, want) || len(want.GetMessages()) != 2 {
		t.Errorf("%s\nwant %s", protojson.Format(got.Request), protojson.Format(want))
	}
	if got.Param("messages[0].role") != "system" {
		t.Error(got.Param("messages[0].role"))
	}
	if b := anthropic.Counted(&chatv1.TokenizeResponse{Ids: []uint32{1, 2, 3}}); string(b) != `{"input_tokens":3}` {
		t.Errorf("%s", b)
	}
	in := &strict.Reading{Strict: true} // fields of the answer have no effect
	if _, err := anthropic.ParseCount([]byte(`{`+fields+`,"max_tokens":16,"stream":true,"metadata":{"user_id":"u"}}`), in); err != nil || in.Header() != "cache_control, max_tokens, metadata, stream" {
		t.Error(err, in.Header())
	}
	if _, err := anthropic.ParseCount([]byte(`{`+fields+`,"thread":{"type":"create"}}`), nil); streamerr.As(err).Param != "thread" {
		t.Error(err)
	}
}

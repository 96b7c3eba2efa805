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
	if _, err := anthropic.ParseCount([]byte(`{`+fields+`,"max_tokens":9}`), &strict.Reading{Strict: true}); streamerr.As(err).Param != "max_tokens" {
		t.Error(err)
	}
}

package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/seeingtest"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const shown = `{"messages":[{"role":"system","content":"Be kind."},
	{"role":"user","content":[{"type":"image"},{"type":"text","text":"and"},{"type":"image"}]},
	{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}],
	"tools":[{"type":"function","function":{"name":"f"}}],"chat_template_kwargs":{"enable_thinking":false},"add_generation_prompt":false,"continue_final_message":true}`

func conversation(text string, images ...*llmv1.Image) *workerv1.TokenRequest {
	req := request(4)
	req.Conversation, req.Images = text, images
	return req
}

func images() []*llmv1.Image {
	return []*llmv1.Image{{Data: []byte(seeingtest.PNG), MediaType: seeingtest.MediaType}, {Data: []byte("2"), MediaType: "image/gif"}}
}

// chunks answers as vLLM does in a chat: first the role, then the ids beside their text.
func chunks(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
	say(w, `{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[1,2,3]}`,
		`{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null,"token_ids":[100,101]}]}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":null,"token_ids":[102]}]}`, // its parser holds text back
		`{"choices":[{"index":0,"delta":{"content":"y"},"finish_reason":"length","stop_reason":null,"token_ids":[103]}]}`,
		`{"choices":[],"usage":{"prompt_tokens":900,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":16}}}`, "[DONE]")
}

// seeing starts an engine on a fake whose model sees images.
func seeing(t *testing.T, answer script, change ...func(*fake)) (*openai.Engine, *fake) {
	t.Helper()
	model, err := lexicon.Load(seeingtest.FS())
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(t, answer, change...)
	return engineOf(t, model, f.URL), f
}

func TestConversationsWithImagesAreSentAsChats(t *testing.T) {
	e, f := seeing(t, chunks)
	if can := e.Upstream().Capabilities.GetImages(); can != llmv1.ImageInput_IMAGE_INPUT_CONVERSATION {
		t.Fatal(can)
	}
	r := read(t.Context(), e, conversation(shown, images()...), nil)
	if r.err != nil || !slices.Equal(r.tokens, []uint32{100, 101, 102, 103}) || r.end.GetFinish() != llmv1.Finish_FINISH_LENGTH {
		t.Fatal(r.err, r.tokens, r.end)
	}
	if u := r.end.GetUsage(); u.GetPromptTokens() != 900 || u.GetCompletionTokens() != 4 || u.GetCachedTokens() != 16 {
		t.Error(u)
	}
	want := map[string]any{}
	if err := json.Unmarshal([]byte(`{"model":"served","max_tokens":4,"stream":true,"stream_options":{"include_usage":true},"return_token_ids":true,"tool_choice":"none",`+
		strings.Replace(strings.Replace(shown[1:], `{"type":"image"}`, `{"type":"image_url","image_url":{"url":"`+seeingtest.DataURL+`"}}`, 1),
			`{"type":"image"}`, `{"type":"image_url","image_url":{"url":"data:image/gif;base64,Mg=="}}`, 1)), &want); err != nil {
		t.Fatal(err)
	}
	if got := *f.asked.Load(); !reflect.DeepEqual(got, want) || f.path.Load() != "/v1/chat/completions" {
		t.Errorf("%v\ngot  %v\nwant %v", f.path.Load(), got, want)
	}
	// vLLM sets a limit that only fills the context, because it knows how much images take.
	req := conversation(shown, images()...)
	req.Sampling.MaxTokens = proto.Uint32(1024)
	if r := read(t.Context(), e, req, nil); r.err != nil || (*f.asked.Load())["max_tokens"] != nil {
		t.Error(r.err, *f.asked.Load())
	}
	// Requests without images are sent as completions.
	if r := read(t.Context(), e, request(2), nil); f.path.Load() != "/v1/completions" {
		t.Error(r.err, f.path.Load())
	}
}

func TestImagesThatTheServerWouldIgnoreAreRefused(t *testing.T) {
	two := images()
	for name, test := range map[string]struct {
		owner string
		req   *workerv1.TokenRequest
		param string
		says  string
	}{
		"SGLang":           {"sglang", conversation(shown, two...), "images", "(sglang) takes none"},
		"llama.cpp":        {"llamacpp", conversation(shown, two...), "images", "(llama.cpp) takes none"},
		"Ollama":           {"library", conversation(shown, two...), "images", "(ollama) takes none"},
		"somebody":         {"somebody", conversation(shown, two...), "images", "(unknown) takes none"},
		"a prompt":         {"vllm", conversation("", two...), "images", "(vllm) takes an image only within a conversation"},
		"too few images":   {"vllm", conversation(shown, two[:1]...), "images", "more placeholders than images"},
		"too many images":  {"vllm", conversation(shown, append(two, two...)...), "images", "2 of 4 images"},
		"no conversation":  {"vllm", conversation("[]", two...), "conversation", "JSON object"},
		"no data":          {"vllm", conversation(shown, &llmv1.Image{MediaType: "image/png"}), "images[0]", "no data"},
		"a type of no use": {"vllm", conversation(shown, &llmv1.Image{Data: []byte("x"), MediaType: "text/html"}), "images[0]", "media type"},
	} {
		t.Run(name, func(t *testing.T) {
			e, f := seeing(t, chunks, func(f *fake) { f.owner = test.owner })
			err := streamerr.As(read(t.Context(), e, test.req, nil).err)
			if err.Reason != streamerr.Invalid || err.Param != test.param || !strings.Contains(err.Message, test.says) || f.asked.Load() != nil {
				t.Error(err)
			}
		})
	}
	e, f := seeing(t, chunks)
	begun := conversation(shown, two...)
	begun.Prompt, begun.Generated = append(begun.GetPrompt(), 100), 1
	likely := conversation(shown, two...)
	likely.Sampling.Logprobs = proto.Uint32(0)
	for param, req := range map[string]*workerv1.TokenRequest{"generated": begun, "sampling.logprobs": likely} {
		if err := streamerr.As(read(t.Context(), e, req, nil).err); err.Param != param || f.asked.Load() != nil {
			t.Errorf("%s: %v", param, err)
		}
	}
	// A model that sees no images, on a server that would take them.
	blind := newFake(t, chunks)
	if err := streamerr.As(read(t.Context(), engineOn(t, blind.URL), conversation(shown, two...), nil).err); err.Param != "images" || blind.asked.Load() != nil {
		t.Error(err)
	}
}

func TestChatWithoutTokenIDsFails(t *testing.T) {
	e, _ := seeing(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		say(w, fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`, "Hello"), "[DONE]")
	})
	if err := streamerr.As(read(t.Context(), e, conversation(shown, images()...), nil).err); err.Reason != streamerr.EngineFailed || !strings.Contains(err.Message, "token ids") {
		t.Error(err)
	}
}

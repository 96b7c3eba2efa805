package chat_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/seeingtest"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

var shown = &llmv1.Image{Data: []byte(seeingtest.PNG), MediaType: seeingtest.MediaType}

func TestWorkersGetImagesWithConversationAndPosition(t *testing.T) {
	m, err := chat.Load(seeingtest.FS(), "seeing", "")
	if err != nil {
		t.Fatal(err)
	}
	p := &parrot{ids: m.Tokenizer.Encode("Hi", false)}
	req := user("Look: is it?")
	req.Messages[0].Images = []*chatv1.PlacedImage{{Image: shown, Offset: 6}}
	if _, _, err := readWhole(t, pipeline(m, p.generate), req); err != nil {
		t.Fatal(err)
	}
	asked := p.asked.Load()
	at := slices.Index(asked.GetPrompt(), seeingtest.Placeholder)
	if at <= 0 || int(asked.GetBeforeImages()) != at || len(asked.GetImages()) != 1 || asked.GetImages()[0] != shown {
		t.Errorf("an image at %d: %v", at, asked)
	}
	if want := "<|im_start|>user\nLook: " + seeingtest.Text + "is it?<|im_end|>\n<|im_start|>assistant\n"; m.Tokenizer.Decode(asked.GetPrompt(), false) != want {
		t.Errorf("the prompt is %q", m.Tokenizer.Decode(asked.GetPrompt(), false))
	}
	if want := `{"messages":[{"role":"user","content":[{"type":"text","text":"Look: "},{"type":"image"},{"type":"text","text":"is it?"}]}]}`; asked.GetConversation() != want {
		t.Errorf("the conversation is %s", asked.GetConversation())
	}

	// Raw prompts contain their placeholders, and have no conversation.
	raw := &chatv1.ChatRequest{Prompts: []*chatv1.Prompt{{Content: &chatv1.Prompt_Text{Text: "a" + seeingtest.Text}, Images: []*llmv1.Image{shown}}}}
	if _, _, err := readWhole(t, pipeline(m, p.generate), raw); err != nil {
		t.Fatal(err)
	}
	if asked := p.asked.Load(); len(asked.GetImages()) != 1 || asked.GetConversation() != "" || asked.GetPrompt()[asked.GetBeforeImages()] != seeingtest.Placeholder {
		t.Error(asked)
	}

	// Requests without images are unchanged.
	if _, _, err := readWhole(t, pipeline(m, p.generate), user("Hi")); err != nil {
		t.Fatal(err)
	}
	if asked := p.asked.Load(); len(asked.GetImages()) != 0 || asked.GetConversation() != "" || asked.GetBeforeImages() != 0 {
		t.Error(asked)
	}
}

// The images of all turns of a conversation together must fit into one message.
func TestImagesOfARequestFitIntoAMessage(t *testing.T) {
	m, err := chat.Load(seeingtest.FS(), "seeing", "")
	if err != nil {
		t.Fatal(err)
	}
	p := &parrot{}
	half := &llmv1.Image{Data: make([]byte, rpc.MaxRequest/2), MediaType: seeingtest.MediaType}
	talk := user("Look")
	talk.Messages[0].Images = []*chatv1.PlacedImage{{Image: half}}
	talk.Messages = append(talk.Messages, &chatv1.Message{Role: "assistant", Content: "Yes?"}, &chatv1.Message{Role: "user", Images: []*chatv1.PlacedImage{{Image: half}}})
	raw := &chatv1.ChatRequest{Prompts: []*chatv1.Prompt{{Content: &chatv1.Prompt_Text{Text: "a"}, Images: []*llmv1.Image{half, half}}}}
	for param, req := range map[string]*chatv1.ChatRequest{"messages": talk, "prompt": raw} {
		_, _, err := readWhole(t, pipeline(m, p.generate), req)
		if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != param || p.asked.Load() != nil {
			t.Error(err)
		}
	}
}

func TestImagesAreRefusedIfTheTemplateTakesNone(t *testing.T) {
	req := user("Look")
	req.Messages[0].Images = []*chatv1.PlacedImage{{Image: shown}}
	p := &parrot{}
	_, _, err := readWhole(t, pipeline(model(t), p.generate), req)
	if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != "messages" || p.asked.Load() != nil {
		t.Error(err)
	}
}

// A tool's screenshot does not end a session with a model that takes no images.
func TestImagesOfToolsAreNotedIfNothingTakesThem(t *testing.T) {
	m, err := chat.Load(seeingtest.FS(), "seeing", "")
	if err != nil {
		t.Fatal(err)
	}
	req := user("Look")
	req.Messages = append(req.Messages, &chatv1.Message{Role: "tool", Content: "shot", Images: []*chatv1.PlacedImage{{Image: shown}}})
	for _, takes := range []bool{true, false} {
		m.TakesImages = func() bool { return takes }
		p := &parrot{ids: m.Tokenizer.Encode("Hi", false)}
		if _, _, err := readWhole(t, pipeline(m, p.generate), req); err != nil {
			t.Fatal(err)
		}
		asked := p.asked.Load()
		if noted := strings.Contains(m.Tokenizer.Decode(asked.GetPrompt(), false), "[image omitted"); noted == takes || (len(asked.GetImages()) == 1) != takes {
			t.Errorf("takes images %t: %v", takes, asked)
		}
	}
	m.TakesImages = func() bool { return false }
	unplaced := user("Look")
	unplaced.Messages = append(unplaced.Messages, &chatv1.Message{Role: "tool", Images: []*chatv1.PlacedImage{{Image: shown, Offset: 9}}})
	if _, _, err := readWhole(t, pipeline(m, (&parrot{}).generate), unplaced); streamerr.As(err).Param != "messages[1].images[0]" {
		t.Error("an image without a place is not refused:", err)
	}
	asked := user("Look")
	asked.Messages[0].Images = []*chatv1.PlacedImage{{Image: shown}}
	p := &parrot{ids: m.Tokenizer.Encode("Hi", false)}
	if _, _, err := readWhole(t, pipeline(m, p.generate), asked); err != nil || len(p.asked.Load().GetImages()) != 1 {
		t.Error("an image of the user is not left to the router, which names the engine:", err)
	}
}

package openai

import (
	"encoding/json"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A chat is the body of POST /v1/chat/completions. Only vLLM gets such requests, and only for prompts
// with images: its /v1/completions takes none, and its gRPC service wants the tensors that
// its HTTP process makes of them. vLLM renders the conversation with the model's own chat template.
type chat struct {
	completion
	Messages  []turn          `json:"messages"`
	Tools     json.RawMessage `json:"tools,omitempty"`
	Variables json.RawMessage `json:"chat_template_kwargs,omitempty"`
	// ToolChoice is "none" if there are tools: the template shows them to the model, and the answer
	// comes as the model wrote it, because chat-service parses calls.
	ToolChoice string `json:"tool_choice,omitempty"`
	ending
}

// An ending says how the prompt of a conversation ends, in vLLM's words.
type ending struct {
	Opens     *bool `json:"add_generation_prompt,omitempty"`
	Continues bool  `json:"continue_final_message,omitempty"`
}

// A turn is a message of a conversation, of which only the content is read.
type turn map[string]json.RawMessage

// A contentPart is a part of a turn's content: text, or an image, which has a URL once the images are
// placed.
type contentPart struct {
	Type  string    `json:"type"`
	Text  string    `json:"text,omitempty"`
	Image *imageURL `json:"image_url,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

// conversation returns the body of a request with images. Its c is the request's completion.
func conversation(c *completion, req *workerv1.TokenRequest) (*chat, error) {
	if c.Logprobs != nil {
		return nil, streamerr.InvalidParam("sampling.logprobs", "the server that generates (vllm) takes images only in chats, whose logprobs have no token ids")
	}
	b := &chat{completion: *c}
	b.Prompt, b.KVTransfer = nil, nil
	var from struct {
		Messages  []turn          `json:"messages"`
		Tools     json.RawMessage `json:"tools"`
		Variables json.RawMessage `json:"chat_template_kwargs"`
		ending
	}
	if err := json.Unmarshal([]byte(req.GetConversation()), &from); err != nil {
		return nil, streamerr.InvalidParam("conversation", "the conversation is not the expected JSON object: %v", err)
	}
	b.Messages, b.Tools, b.Variables, b.ending = from.Messages, from.Tools, from.Variables, from.ending
	if len(b.Tools) > 0 {
		b.ToolChoice = "none"
	}
	urls := beside.DataURLs(req.GetImages())
	for _, t := range b.Messages {
		var err error
		if urls, err = t.place(urls); err != nil {
			return nil, err
		}
	}
	if len(urls) > 0 {
		return nil, streamerr.InvalidParam("images", "the conversation has placeholders for %d of %d images", len(req.GetImages())-len(urls), len(req.GetImages()))
	}
	return b, nil
}

// place gives the images of a turn the first of urls, and returns the others.
func (t turn) place(urls []string) ([]string, error) {
	var parts []contentPart
	if content := t["content"]; len(content) == 0 || content[0] != '[' {
		return urls, nil
	} else if err := json.Unmarshal(content, &parts); err != nil {
		return nil, streamerr.InvalidParam("conversation", "the content of a message is not an array of parts: %v", err)
	}
	for i := range parts {
		if parts[i].Type != "image" {
			continue
		}
		if len(urls) == 0 {
			return nil, streamerr.InvalidParam("images", "the conversation has more placeholders than images")
		}
		parts[i] = contentPart{Type: "image_url", Image: &imageURL{urls[0]}}
		urls = urls[1:]
	}
	content, err := json.Marshal(parts)
	if err != nil {
		return nil, err
	}
	t["content"] = content
	return urls, nil
}

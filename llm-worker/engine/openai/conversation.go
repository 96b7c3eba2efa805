package openai

import (
	"encoding/json"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A chat is the body of POST /v1/chat/completions. Any server gets such requests if the worker has no
// files of the model. Otherwise only vLLM does, and only for prompts with images: its /v1/completions
// takes none, and its gRPC service wants the tensors that its HTTP process makes of them. vLLM renders
// the conversation with the model's own chat template.
type chat struct {
	completion
	dialogue
	Effort string `json:"reasoning_effort,omitempty"`
}

// A dialogue is the part of a chat that chat-service writes: TokenRequest.conversation.
type dialogue struct {
	Messages  []turn          `json:"messages"`
	Tools     json.RawMessage `json:"tools,omitempty"`
	Variables json.RawMessage `json:"chat_template_kwargs,omitempty"`
	// ToolChoice is "none" if there are tools and the worker has the model's files: the template shows
	// them to the model, and the answer comes as the model wrote it, because chat-service parses calls.
	ToolChoice json.RawMessage `json:"tool_choice,omitempty"`
	Parallel   *bool           `json:"parallel_tool_calls,omitempty"`
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
	if err := readConversation(req, &b.dialogue); err != nil {
		return nil, err
	}
	if len(b.Tools) > 0 {
		b.ToolChoice = json.RawMessage(`"none"`)
	}
	return b, b.place(req)
}

// readConversation reads the conversation of a request.
func readConversation(req *workerv1.TokenRequest, into any) error {
	if err := json.Unmarshal([]byte(req.GetConversation()), into); err != nil {
		return streamerr.InvalidParam("conversation", "the conversation is not the expected JSON object: %v", err)
	}
	return nil
}

// place puts the images of a request into its turns.
func (d *dialogue) place(req *workerv1.TokenRequest) (err error) {
	urls := beside.DataURLs(req.GetImages())
	for _, t := range d.Messages {
		if urls, err = t.place(urls); err != nil {
			return err
		}
	}
	if len(urls) > 0 {
		return streamerr.InvalidParam("images", "the conversation has placeholders for %d of %d images", len(req.GetImages())-len(urls), len(req.GetImages()))
	}
	return nil
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

package openai

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/guided"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// isTextOnly reports whether the worker has no files of the model.
func (e *Engine) isTextOnly() bool { return e.model.Tokenizer == nil }

// A text is a call for an answer that the server parses.
type text struct {
	stream *overhttp.Stream
	answer *textAnswer
	aborts bool // the server is known to abort a request whose connection is closed

	written *workerv1.Written // of the tokens that Next has returned
	end     *llmv1.End        // comes with the last piece
}

// askText returns the call of a request that passes as text.
func (e *Engine) askText(up *upstream, req *workerv1.TokenRequest) (*text, error) {
	switch {
	case req.GetGenerated() > 0:
		return nil, streamerr.InvalidParam("generated", "generated is %d, but a worker without files of the model cannot continue an answer", req.GetGenerated())
	case req.GetConversation() == "":
		return nil, streamerr.InvalidParam("conversation", "this worker has no files of the model, and takes only conversations as text")
	}
	if err := up.Check(req); err != nil {
		return nil, err
	}
	path, body, limit, err := e.textBody(up, req)
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &text{
		stream: e.client.Stream(path, encoded, len(req.GetPrompt())), answer: newTextAnswer(len(req.GetPrompt()), limit, up.kind.dialect), aborts: up.kind != unknown && !up.kind.busy,
	}, nil
}

// Open implements beside.Call.
func (t *text) Open(ctx context.Context) error { return t.stream.Open(ctx) }

// Next implements beside.Call: it returns a zero for each token of the next piece of the answer.
func (t *text) Next() (ids []uint32, end *llmv1.End, err error) {
	if len(t.answer.pieces) == 0 && t.end == nil {
		if _, t.end, err = t.stream.Tokens(t.read); err != nil {
			return nil, nil, err
		}
	}
	p := t.answer.take()
	t.written = p.written
	if len(t.answer.pieces) == 0 {
		end = t.end
	}
	return make([]uint32, p.tokens), end, nil
}

// read reads one event.
func (t *text) read() ([]uint32, *llmv1.End, error) {
	data, err := t.stream.Next()
	if err != nil {
		return t.answer.closed(err)
	}
	return t.answer.next(data)
}

// Tell implements beside.Teller: it adds the content.
func (t *text) Tell(tokens *workerv1.Tokens) { tokens.Written = t.written }

// Stop implements beside.Call. A server of an unknown make, or a busy one, may generate on, unseen, after
// its connection was closed.
func (t *text) Stop() (confirmed bool) {
	t.stream.HangUp()
	return t.aborts
}

// textBody returns the body of a request, its path, and its max_tokens; 0 for none.
func (e *Engine) textBody(up *upstream, req *workerv1.TokenRequest) (path string, body any, limit int, err error) {
	var asked struct {
		dialogue
		Prompt    *string `json:"prompt"`
		MaxTokens int     `json:"max_tokens"`
	}
	if err := readConversation(req, &asked); err != nil {
		return "", nil, 0, err
	}
	s := req.GetSampling()
	if s == nil {
		s = &llmv1.Sampling{}
	}
	c := completion{Model: up.model, Stream: true, MaxTokens: asked.MaxTokens}
	if !up.noUsage {
		c.StreamOptions = &streamOptions{IncludeUsage: true, Continuous: up.kind == vllm || up.kind == sglang}
	}
	c.adapt(up.kind, req.GetAdapter())
	c.sample(up, s)
	if c.RepeatLastN != nil && up.Context == textonly.NoLimit {
		c.RepeatLastN = nil
	}
	c.guideFields = responseFormat(s.GetGuide())
	if asked.Prompt != nil {
		c.Prompt = *asked.Prompt
		return "/v1/completions", &c, asked.MaxTokens, nil
	}
	b := &chat{completion: c, dialogue: asked.dialogue}
	if err := b.fit(up.kind); err != nil {
		return "", nil, 0, err
	}
	return "/v1/chat/completions", b, asked.MaxTokens, b.place(req)
}

// fit says what the conversation asks for in the words of a kind of server.
func (c *chat) fit(k *kind) error {
	switch {
	case c.Opens == nil && !c.Continues:
	case slices.Contains([]*kind{vllm, sglang, whence}, k):
	case c.Continues && (k == llamacpp || k == ollama): // they continue the last message if it is the assistant's
		c.ending = ending{}
	default:
		return streamerr.InvalidParam("continue_message", "the server that generates (%s) always opens a turn of the assistant", k.Upstream).WithCode(streamerr.CodeUnsupportedField)
	}
	var switches struct {
		Effort string `json:"reasoning_effort"`
		Thinks *bool  `json:"enable_thinking"`
	}
	_ = json.Unmarshal(c.Variables, &switches) // of other types, they are the template's alone
	switch {
	case slices.Contains([]string{"low", "medium", "high"}, switches.Effort):
		c.Effort = switches.Effort
	case k == ollama && (switches.Effort == "none" || switches.Thinks != nil && !*switches.Thinks):
		c.Effort = "none"
	}
	return nil
}

// responseFormat returns the field for a guide, in OpenAI's form. Servers without such a field ignore it.
func responseFormat(g *llmv1.Guide) guideFields {
	if g == nil {
		return guideFields{}
	}
	schema, _ := guided.Schema(g)
	if schema == `{"type":"object"}` { // response_format json_object
		return guideFields{ResponseFormat: map[string]any{"type": "json_object"}}
	}
	return guideFields{ResponseFormat: map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "schema": json.RawMessage(schema)}}}
}

// textTrial is the conversation of a trial.
const textTrial = `{"messages":[{"role":"user","content":"` + beside.TrialPrompt + `"}],"max_tokens":1}`

// plainTrial returns the plainest request that the engine sends.
func (e *Engine) plainTrial() *workerv1.TokenRequest {
	if !e.isTextOnly() {
		return beside.TrialRequest(e.model.TrialPrompt())
	}
	req := beside.TrialRequest(textonly.Words(textTrial))
	req.Conversation, req.Sampling.MaxTokens = textTrial, nil
	return req
}

// tryText is try for a worker that is text only. A server that refuses stream_options is asked without
// them.
func (e *Engine) tryText(ctx context.Context, listed *upstream) (*upstream, error) {
	var first error
	for _, noUsage := range []bool{false, true} {
		as := *listed
		as.noUsage, as.Capabilities = noUsage, listed.kind.textCapabilities(listed.reported)
		as.Facts = []string{textNote}
		call, err := e.askText(&as, e.plainTrial())
		if err == nil {
			err = beside.Drain(ctx, call)
		}
		switch {
		case err == nil:
			_ = e.tryPooling(ctx, &as) // none: it generates
			e.readAdapters(ctx, &as)
			return &as, nil
		case listed.onlyPools(err):
			return e.tryOnlyPooling(ctx, listed, err)
		case errors.Is(err, streamerr.Overloaded) && as.kind != unknown:
			return &as, err
		case !errors.Is(err, streamerr.Invalid):
			return nil, err
		case first == nil:
			first = err
		}
	}
	return nil, first
}

// textNote tells operators what a worker without files cannot do.
const textNote = "without files of the model, conversations and answers pass as text: an answer does not move after its first token, and the server alone counts tokens and parses answers"

// beyondText are the fields of Sampling that name token ids, or ask for them, and max_tokens, which the conversation has.
var beyondText = []string{"max_tokens", "logit_bias", "stop_token_ids", "logprobs", "prompt_logprobs"}

// textCapabilities returns what a worker that is text only passes on. The server applies a response format
// as it can.
func (k *kind) textCapabilities(reported []string) *llmv1.Capabilities {
	can := k.Capabilities(reported...)
	can.Prompt, can.Answer, can.Images = llmv1.Form_FORM_CONVERSATION, llmv1.Form_FORM_TEXT, llmv1.ImageInput_IMAGE_INPUT_CONVERSATION
	can.Sampling = slices.DeleteFunc(can.Sampling, func(field string) bool { return slices.Contains(beyondText, field) })
	if !slices.Contains(can.Sampling, "guide") {
		can.Sampling = append(can.Sampling, "guide")
	}
	can.Guides, can.Adapters = llmv1.GuideSupport_GUIDE_SUPPORT_SCHEMA, k.adapters != noAdapters
	return can
}

// contextOfText returns the context length that a server without max_model_len reports, or NoLimit.
func (e *Engine) contextOfText(ctx context.Context, k *kind) int {
	var props struct {
		Settings struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if k == llamacpp && e.client.Get(ctx, "/props", &props) == nil && props.Settings.Context > 0 {
		return props.Settings.Context
	}
	return textonly.NoLimit
}

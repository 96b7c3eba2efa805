// Package openai is an engine on an OpenAI-compatible server beside the worker: vLLM, SGLang,
// llama.cpp, Ollama or another Whence. However the server behaves, a stream ends exactly once, with a typed ending.
//
// Generate is a stream.Sequence over token ids. It asks POST /v1/completions, with the prompt as ids
// if the server takes ids, else as text that has exactly these ids. Answers are the server's token ids if it returns ids; else its text is spelled in ids that
// decode to it (tokenizer.Speller). Capabilities name the form.
//
// An answer is complete if a finish_reason of stop, length or content_filter has come and the
// response has ended, with or without [DONE]; or if [DONE] follows all requested tokens. Any other
// end of the response is a failure with the origin "engine": PEER_LOST for a response that just
// ends, ENGINE_FAILED for one that cannot be parsed, the reason of an error in the stream, or the
// reason of the status if there is no answer. A stopped stream closes its connection, which makes
// these servers abort; the connection is closed before Generate yields the cause.
//
// A worker without the files of the model (lexicon.Model.Tokenizer is nil) is text only: conversations go
// to POST /v1/chat/completions as the client has sent them, and the server's deltas come back as
// Tokens.written; see text.
//
// A conversation with images goes to POST /v1/chat/completions of a vLLM, which renders it itself and
// answers with token ids there, too. All other servers get no images.
//
// vLLM can hand over a prompt that it has read to another vLLM. Its parameters for that,
// kv_transfer_params, are passed on unchanged.
//
// The engine has no queue. A stream reads on only after its reader has taken the last item, so the
// server feels a slow reader through TCP. Streams, events, headers and messages are bounded. The
// worker's timers end a server that hangs.
package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
)

// The forms of a prompt that an upstream may get.
const (
	PromptAuto = "auto" // ids if it takes them
	PromptIDs  = "ids"
	PromptText = "text"
)

// Options describe the server and how to call it. Upstream is its URL, such as
// http://127.0.0.1:8000, with or without /v1.
type Options struct {
	beside.Options
	Model  string // the server's name for the model; "" means the first model of its list
	Key    string // sent as a bearer token unless ""
	Prompt string // PromptAuto, as is "", PromptIDs or PromptText
	// HandsOver reports that the worker has a role: the server prefills prompts for other servers,
	// or decodes prompts that another server has prefilled. The server must support that.
	HandsOver bool
}

// Validate checks o. Its errors name the flags.
func (o *Options) Validate() error {
	if err := overhttp.Validate(o.Upstream, o.Key); err != nil {
		return err
	}
	if o.Prompt != "" && o.Prompt != PromptAuto && o.Prompt != PromptIDs && o.Prompt != PromptText {
		return fmt.Errorf("--upstream-prompt is %.64q; it must be %s, %s or %s", o.Prompt, PromptAuto, PromptIDs, PromptText)
	}
	return nil
}

// An Engine generates on an upstream. Generate works while Watch finds the upstream healthy.
type Engine struct {
	*beside.Engine
	model  *lexicon.Model
	opts   Options
	client *overhttp.Client
	kind   atomic.Pointer[kind] // of the server that listed its models last; unseen before
	sleeps atomic.Bool          // as the server's last report of its load says
	silent sync.Once            // logs that the server does not report cached tokens
}

// New returns an engine of model; the options must be valid.
func New(model *lexicon.Model, opts Options) *Engine {
	base := strings.TrimSuffix(strings.TrimSuffix(opts.Upstream, "/"), "/v1")
	e := &Engine{model: model, opts: opts, client: overhttp.New(base, opts.Key)}
	e.client.Pin(opts.Rank)
	e.kind.Store(unseen)
	e.client.Understand(func(c *beside.Complaint, inAnswer bool) { e.kind.Load().dialect.Complete(c, inAnswer) })
	e.Engine = beside.New(opts.Options, newLook(e).look)
	e.ReadLoad(e.load)
	return e
}

// Watch is beside.Engine's Watch. When it returns, idle connections are closed.
func (e *Engine) Watch(ctx context.Context, changed func(healthy bool)) {
	defer e.client.Close()
	e.Engine.Watch(ctx, changed)
}

// scoredPerToken is how many times the ids of a prompt its log-probabilities take, for each alternative.
const scoredPerToken = 8

// A call is a request to an upstream.
type call struct {
	stream *overhttp.Stream
	answer *answer
	kind   *kind
}

// ask returns the call of a request.
func (e *Engine) ask(up *upstream, req *workerv1.TokenRequest) (*call, error) {
	c, err := e.completion(up, req)
	if err != nil {
		return nil, err
	}
	path, asked := "/v1/completions", any(c)
	if len(req.GetImages()) > 0 {
		path = "/v1/chat/completions"
		if asked, err = conversation(c, req); err != nil {
			return nil, err
		}
	}
	body, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	answer, err := newAnswer(e.model, req, c.MaxTokens, up.kind.dialect)
	if err != nil {
		return nil, err
	}
	// With images, vLLM's prompt may fill the context, whatever the length of ours.
	prompt := len(req.GetPrompt())
	if len(req.GetImages()) > 0 {
		prompt = up.Context
	}
	if c.Echo {
		prompt *= scoredPerToken * (1 + int(*c.Logprobs)) // an event may have all log-probabilities of the prompt
	}
	return &call{e.client.Stream(path, body, prompt), answer, up.kind}, nil
}

// Open implements beside.Call. Some servers send the head of their response only with the first
// token.
func (c *call) Open(ctx context.Context) error { return c.stream.Open(ctx) }

// Next implements beside.Call: the tokens of events; the end of the response has the ending.
func (c *call) Next() ([]uint32, *llmv1.End, error) { return c.stream.Tokens(c.read) }

// read reads one event.
func (c *call) read() ([]uint32, *llmv1.End, error) {
	data, err := c.stream.Next()
	if err != nil {
		return c.answer.closed(err)
	}
	return c.answer.next(data)
}

// Tell implements beside.Teller.
func (c *call) Tell(tokens *workerv1.Tokens) { c.answer.likely.Complete(tokens) }

// Scores implements beside.Scorer.
func (c *call) Scores() *workerv1.PromptLogprobs { return c.answer.scored.Take() }

// Stop implements beside.Call.
func (c *call) Stop() (confirmed bool) {
	c.stream.HangUp()
	return !c.kind.busy // the connection is closed: these servers confirm a stop in no other way
}

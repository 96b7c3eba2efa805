// Package ollama is an engine that generates on an Ollama beside the worker, over Ollama's own POST
// /api/generate.
//
// Ollama takes and returns only text. A prompt is sent raw, as the text that has exactly its ids,
// and never truncated: a prompt that Ollama's context cannot hold is refused. The answer's text is
// spelled in ids that decode to it. So streams do not resume. A log-probability is that of the token with
// the same text, if the text is one token. Package features says what is honoured.
//
// A stopped stream closes its connection, which makes Ollama abort; nothing confirms the stop. An answer
// is complete when the line with "done" has come.
package ollama

import (
	"context"
	"errors"
	"strings"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/llm-worker/engine/features"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Options are beside.Options, a model and a key. Upstream is a URL.
type Options struct {
	beside.Options
	Model string // Ollama's name for the model; "" means the first model of its list
	Key   string // sent as a bearer token unless ""
}

// An Engine generates on an Ollama. Generate works while Watch finds the server healthy.
type Engine struct {
	*beside.Engine
	model  *lexicon.Model
	opts   Options
	client *overhttp.Client

	// Owned by look.
	trials beside.Trials[listing]
	stops  []string // the stop strings of the Modelfile that were logged
}

// New returns an engine of model; the options must be valid.
func New(model *lexicon.Model, opts Options) *Engine {
	e := &Engine{model: model, opts: opts, client: overhttp.New(opts.Upstream, opts.Key)}
	e.client.Understand(beside.Ollama)
	e.trials.Same = func(a, b *listing) bool { return *a == *b }
	e.trials.Plain = beside.TrialRequest(model.TrialPrompt())
	e.trials.Alive = func(ctx context.Context) error {
		_, err := e.find(ctx, "/api/tags", "")
		return err
	}
	e.Engine = beside.New(opts.Options, e.look)
	return e
}

// A listing is a model in Ollama's lists.
type listing struct {
	Name    string `json:"name"`
	Digest  string `json:"digest"`
	Context int    `json:"context_length"` // only in the list of loaded models
}

// Watch is beside.Engine's Watch. When it returns, idle connections are closed.
func (e *Engine) Watch(ctx context.Context, changed func(healthy bool)) {
	defer e.client.Close()
	e.Engine.Watch(ctx, changed)
}

// look is a beside.Look. It always requests the list of models, and generates a token only to try a
// model that is new or in doubt: that loads the model, and so shows how long its context is.
func (e *Engine) look(ctx context.Context, was *beside.Upstream, doubt bool) (*beside.Upstream, error) {
	now, err := e.find(ctx, "/api/tags", e.opts.Model)
	if err != nil {
		return e.trials.Unlisted(err)
	}
	return e.trials.Look(ctx, &now, was, doubt, func(ctx context.Context) (*beside.Upstream, error) { return e.try(ctx, now.Name) })
}

// find returns the model of a name, or the first model for "", in one of Ollama's lists.
func (e *Engine) find(ctx context.Context, list, name string) (listing, error) {
	var models struct {
		Models []listing `json:"models"`
	}
	if err := e.client.Get(ctx, list, &models); err != nil {
		return listing{}, err
	}
	for _, m := range models.Models {
		if name == "" || m.Name == name || m.Name == name+":latest" {
			return m, nil
		}
	}
	if name == "" {
		return listing{}, errors.New("the server has no model; ollama pull adds one")
	}
	return listing{}, beside.Fail(streamerr.NotFound, nil, "the server that generates has no model %.128q; --upstream-model says which model to ask for", name)
}

// logprobsField is the field of Sampling that only newer versions honour.
const logprobsField = "logprobs"

// try makes the server answer with one token, and returns its description.
func (e *Engine) try(ctx context.Context, name string) (*beside.Upstream, error) {
	model := beside.Model{Name: name, Generation: true}
	up, err := model.Upstream(e.model.Config())
	if err != nil {
		return nil, err
	}
	up.Name = strings.TrimSuffix(name, ":latest")
	describe := func(reported ...string) {
		up.Capabilities = features.Ollama.Capabilities(reported...)
		up.Capabilities.Prompt, up.Capabilities.Answer = llmv1.Form_FORM_TEXT, llmv1.Form_FORM_TEXT
	}
	describe(logprobsField)
	to := &target{name: name}
	up.Ask = func(_ context.Context, req *workerv1.TokenRequest) (beside.Call, error) { return e.ask(up, to, req) }
	req := beside.TrialRequest(e.trials.Plain.GetPrompt())
	req.Sampling.Logprobs = new(uint32(0)) // older versions ignore it
	c, err := e.ask(up, to, req)
	if err != nil {
		return nil, err
	}
	failed := beside.Drain(ctx, c)
	if failed != nil && !errors.Is(failed, streamerr.Overloaded) {
		return nil, failed
	}
	if !c.answer.hasLogprobs {
		describe()
	}
	if read := c.answer.promptTokens; int64(read) > int64(len(req.GetPrompt())) {
		return nil, beside.Fail(streamerr.Invalid, nil, "the server counted %d tokens of a prompt of %d: its model has another tokenizer than --model", read, len(req.GetPrompt()))
	}
	if failed == nil {
		note, err := e.agree(ctx, up, to)
		if err != nil {
			return nil, err
		}
		if note != "" {
			up.Notes = []string{note}
		}
		form := beside.FormTrial{Upstream: up, Ask: up.Ask, Prompt: e.trials.Plain.GetPrompt(), Text: e.model.Texts()}
		failed = form.Try(ctx)
	}
	if loaded, err := e.find(ctx, "/api/ps", name); err == nil && loaded.Context > 0 {
		up.Context = min(up.Context, loaded.Context)
	} else {
		to.unbounded = true
	}
	e.logStops(ctx, name)
	return up, failed
}

// agree compares the worker's model files with the server's model, by the number of tokens of texts: Ollama
// tells no more.
func (e *Engine) agree(ctx context.Context, up *beside.Upstream, to *target) (note string, err error) {
	a := lexicon.Agreement{Model: e.model, Server: to.name, Loose: true}
	return a.Count(ctx, func(ctx context.Context, text string, special bool) (lexicon.Spelling, error) {
		c, err := e.ask(up, to, beside.TrialRequest(e.model.Tokenizer.Encode(text, special)))
		if err == nil {
			err = beside.Drain(ctx, c)
		}
		if err != nil {
			return lexicon.Spelling{}, err
		}
		return lexicon.Spelling{Count: int(c.answer.promptTokens)}, nil
	})
}

// Package llamacpp is an engine that generates on llama.cpp's server beside the worker, over the
// server's own POST /completion: token ids in, token ids out.
//
// The server sends no event for a token that ends within a character, and so never reports its id.
// The next event counts such a token, and has the text of the whole character. The engine finds the
// ids from that text: see lostIDs. If the text is not valid UTF-8, the engine guesses them. The
// log-probabilities of these tokens cannot be found, so they are reported as impossible.
//
// A stopped stream closes its connection, which makes the server abort after the current step or, while
// it reads a prompt, after the current batch. The stop is confirmed once no slot works on the request,
// which a request's seed tells: a request without a seed gets a random one. An answer is complete when
// the event with "stop" has come. Package features lists the honoured fields.
package llamacpp

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync/atomic"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/llm-worker/engine/features"
	"github.com/whence-dev/whence/llm-worker/guide"
)

// Options are beside.Options and a key. Upstream is a URL.
type Options struct {
	beside.Options
	Key string // sent as a bearer token unless ""
}

// An Engine generates on a llama.cpp. Generate works while Watch finds the server healthy.
type Engine struct {
	*beside.Engine
	model    *lexicon.Model
	client   *overhttp.Client
	pieces   pieces
	slots    *slots
	grammars guide.Grammars

	trials beside.Trials[props] // owned by look
}

// New returns an engine of model; the options must be valid.
func New(model *lexicon.Model, opts Options) *Engine {
	e := &Engine{model: model, client: overhttp.New(opts.Upstream, opts.Key), pieces: newPieces(model.Tokenizer)}
	e.slots = newSlots(e.client)
	e.trials.Same = func(a, b *props) bool { return *a == *b }
	e.trials.Plain = beside.TrialRequest(model.TrialPrompt())
	e.trials.Alive = func(ctx context.Context) error { return e.client.Get(ctx, "/props", new(props)) }
	e.Engine = beside.New(opts.Options, e.look)
	e.ReadLoad(e.load)
	return e
}

// props is the part of GET /props that the engine reads.
type props struct {
	Alias   string `json:"model_alias"`
	Path    string `json:"model_path"`
	Slots   int    `json:"total_slots"`
	Default struct {
		Context int `json:"n_ctx"` // of one slot
	} `json:"default_generation_settings"`
}

// name returns the server's name of the model.
func (p *props) name() string {
	if p.Alias != "" {
		return p.Alias
	}
	return strings.TrimSuffix(path.Base(p.Path), ".gguf")
}

// Watch is beside.Engine's Watch. When it returns, idle connections are closed.
func (e *Engine) Watch(ctx context.Context, changed func(healthy bool)) {
	defer e.client.Close()
	e.Engine.Watch(ctx, changed)
}

// look is a beside.Look. The server answers /props only while its model is loaded.
func (e *Engine) look(ctx context.Context, was *beside.Upstream, doubt bool) (*beside.Upstream, error) {
	now := new(props)
	if err := e.client.Get(ctx, "/props", now); err != nil {
		return e.trials.Unlisted(err)
	}
	return e.trials.Look(ctx, now, was, doubt, func(ctx context.Context) (*beside.Upstream, error) { return e.try(ctx, now) })
}

// try proves that the server runs the model of the worker's files, and makes it answer with one token, and
// with everything that requests may have: versions of the server differ in what they take.
func (e *Engine) try(ctx context.Context, now *props) (*beside.Upstream, error) {
	model := beside.Model{Name: now.name(), Context: now.Default.Context, Generation: true}
	up, err := model.Upstream(e.model.Config())
	if err != nil {
		return nil, err
	}
	up.Resumes, up.Slots, up.Capabilities = true, now.Slots, features.LlamaCPP.Capabilities()
	up.Ask = func(_ context.Context, req *workerv1.TokenRequest) (beside.Call, error) { return e.ask(up, req) }
	if up.Notes, err = e.agree(ctx, up); err != nil {
		return nil, err
	}
	if err := beside.TryPlain(ctx, up.Ask, e.trials.Plain); err != nil {
		return up, err
	}
	up.Rendered = e.client.Rendered(ctx)
	form := beside.FormTrial{Upstream: up, Ask: up.Ask, Prompt: e.trials.Plain.GetPrompt(), Text: e.model.Texts()}
	return up, form.Try(ctx)
}

// agree compares the worker's model files with the server's model: the size of the vocabulary, and the
// tokens of texts. A proxy may let neither through.
func (e *Engine) agree(ctx context.Context, up *beside.Upstream) (notes []string, err error) {
	var models struct {
		Data []struct {
			Meta struct {
				Vocab int `json:"n_vocab"`
			} `json:"meta"`
		} `json:"data"`
	}
	a := lexicon.Agreement{Model: e.model, Server: up.Name}
	if e.client.Get(ctx, "/v1/models", &models) == nil && len(models.Data) > 0 {
		if err := a.FitsInto(models.Data[0].Meta.Vocab); err != nil {
			return nil, err
		}
	}
	note, err := a.Prove(ctx, func(ctx context.Context, text string, special bool) (said lexicon.Spelling, err error) {
		said.IDs, err = e.client.Tokenize(ctx, map[string]any{"content": text, "add_special": special})
		return said, err
	})
	if errors.Is(err, lexicon.ErrUntold) {
		return []string{"whether the server runs the model of the worker's files could not be proved: " + err.Error()}, nil
	}
	if note != "" {
		notes = []string{note}
	}
	return notes, err
}

// load is a beside.LoadReader. Only the server's metrics, which it has with --metrics, tell how many
// requests wait for a slot.
func (e *Engine) load(ctx context.Context) (*beside.ServerLoad, error) {
	if load, err := e.client.Load(ctx, overhttp.LlamaCPPMetrics); err == nil {
		return load, nil
	}
	var slots []slot
	if err := e.client.Get(ctx, "/slots", &slots); err != nil {
		return nil, err
	}
	load := new(beside.ServerLoad)
	for _, slot := range slots {
		if slot.Busy {
			load.Running++
		}
	}
	return load, nil
}

// A call is one request to the server.
type call struct {
	stream *overhttp.Stream
	answer *answer
	slots  *slots
	seed   uint64
	unique bool        // no other request has this seed
	begun  atomic.Bool // an event has come, so the request has a slot
	ended  atomic.Bool // the last event has come
}

// Open implements beside.Call. The server sends the header of its response with the first token.
func (c *call) Open(ctx context.Context) error { return c.stream.Open(ctx) }

// Next implements beside.Call: the tokens of events; the last event has the ending.
func (c *call) Next() ([]uint32, *llmv1.End, error) { return c.stream.Tokens(c.read) }

// read reads one event.
func (c *call) read() ([]uint32, *llmv1.End, error) {
	data, err := c.stream.Next()
	if err != nil {
		return nil, nil, err
	}
	c.begun.Store(true)
	ids, end, err := c.answer.next(data)
	if end != nil {
		c.ended.Store(true)
	}
	return ids, end, err
}

// Tell implements beside.Teller.
func (c *call) Tell(tokens *workerv1.Tokens) {
	c.answer.ids.Tell(tokens)
	c.answer.likely.Complete(tokens)
}

// Stop implements beside.Call.
func (c *call) Stop() (confirmed bool) {
	c.stream.HangUp()
	return c.ended.Load() // see Confirm
}

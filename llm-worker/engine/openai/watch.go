package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An upstream describes the server. It is immutable.
type upstream struct {
	beside.Upstream
	kind    *kind
	model   string // the server's name for the model
	listed  bool   // /v1/models has the model
	instead string // what /v1/models has instead of the model; "" if listed
	prompt  llmv1.Form
	askIDs  bool       // with return_token_ids
	embeds  llmv1.Form // the form of texts that it embeds; FORM_UNSPECIFIED if it does not embed
	noUsage bool       // it takes no stream_options, so that it reports no usage
	scores  *scorer    // how it rates documents; nil if it does not
	batch   int        // the maximum number of inputs of a request for vectors or scores; 0 for any

	poolsOnly bool // its model does not generate: it embeds or scores

	reported []string // the fields of Sampling that another Whence honours
	others   []string // the models that /v1/models has besides the model: adapters are among them
	started  []string // the adapters that an SGLang was started with
}

// sameList reports whether /v1/models gave the same answer for both, apart from the other models.
func (u *upstream) sameList(other *upstream) bool {
	return u.kind == other.kind && u.model == other.model && u.Context == other.Context && u.listed == other.listed && u.poolsOnly == other.poolsOnly && slices.Equal(u.reported, other.reported)
}

// A look is the state of the probe between two calls.
type look struct {
	engine *Engine
	trials beside.Trials[upstream]
	last   *upstream // the description that is in use, or was last; nil until there was one
}

func newLook(e *Engine) *look {
	return &look{engine: e, trials: beside.Trials[upstream]{Same: (*upstream).sameList, Plain: e.plainTrial(), Alive: func(ctx context.Context) error {
		return e.client.Get(ctx, "/v1/models", new(struct{}))
	}}}
}

// look is a beside.Look. It always requests the list of models, which costs the server nothing. It
// generates a token only to try a server that is new or in doubt.
func (l *look) look(ctx context.Context, was *beside.Upstream, doubt bool) (*beside.Upstream, error) {
	listed, err := l.engine.list(ctx)
	if err != nil {
		return l.trials.Unlisted(err)
	}
	l.engine.kind.Store(listed.kind) // the trial may fail, in the server's own words
	if l.engine.opts.HandsOver && listed.kind != vllm {
		return nil, errNoHandover // any other server would ignore the handover and read every prompt again
	}
	if l.engine.opts.Rank != (beside.Rank{}) && listed.kind != vllm && listed.kind != sglang {
		return nil, errNoRanks // any other server would ignore the rank
	}
	if was == nil || doubt || l.engine.sleeps.Load() { // it may sleep, and would not answer a trial
		if load, err := l.engine.load(ctx); err == nil && load.Asleep {
			return nil, errAsleep
		}
	}
	var tried *upstream
	up, err := l.trials.Look(ctx, listed, was, doubt, func(ctx context.Context) (_ *beside.Upstream, err error) {
		if tried, err = l.engine.try(ctx, listed); tried == nil {
			return nil, err
		}
		return l.use(tried), err
	})
	switch {
	case errors.Is(err, streamerr.NotFound) && !listed.listed:
		return nil, beside.Fail(streamerr.NotFound, err, "the server that generates has no model %.128q; %s. --upstream-model says which model to ask for", listed.model, listed.instead)
	case err != nil:
		return nil, err
	case tried != nil && up == &tried.Upstream:
		l.last = tried
	case was != nil && listed.sameList(l.last) && !slices.Equal(listed.others, l.last.others):
		with := *l.last // an adapter was loaded or unloaded, which needs no trial
		with.others = listed.others
		l.last = &with
		return l.use(&with), nil
	case was != nil:
		return was, nil
	}
	return up, nil
}

// load is a beside.LoadReader.
func (e *Engine) load(ctx context.Context) (*beside.ServerLoad, error) {
	metrics := e.kind.Load().metrics
	if metrics.Running == "" {
		return nil, errNoLoad
	}
	load, err := e.client.Load(ctx, metrics)
	e.sleeps.Store(err == nil && load.Asleep)
	return load, err
}

// errAsleep is why a server cannot be used that its operator has put to sleep.
var errAsleep = errors.New("the server that generates sleeps: its operator has called /sleep, and /wake_up wakes it")

// errNoRanks refuses a server without ranks for a worker with a rank.
var errNoRanks = errors.New("--upstream-rank requires a server with data-parallel ranks, vLLM or SGLang; this server does not identify itself as one of them")

// errNoLoad is why the load of a server is unknown.
var errNoLoad = errors.New("the server has no metrics of its load")

// use returns the description of a server that can be used.
func (l *look) use(up *upstream) *beside.Upstream {
	if up.kind.adapters != noAdapters && !up.kind.refuses {
		up.Upstream = up.WithAdapters(up.others, up.started)
	}
	if !up.poolsOnly {
		up.Ask = func(_ context.Context, req *workerv1.TokenRequest) (beside.Call, error) {
			if l.engine.isTextOnly() {
				return l.engine.askText(up, req)
			}
			if req.GetKvTransfer().GetAsk() {
				return l.engine.read(up, req)
			}
			return l.engine.ask(up, req)
		}
	}
	if up.embeds != llmv1.Form_FORM_UNSPECIFIED {
		up.AskEmbed = func(_ context.Context, req *workerv1.EmbedRequest) (beside.PoolingCall[*workerv1.EmbedResponse], error) {
			return l.engine.askEmbed(up, req)
		}
	}
	if up.scores != nil {
		up.AskScore = func(_ context.Context, req *workerv1.ScoreRequest) (beside.PoolingCall[*workerv1.ScoreResponse], error) {
			return l.engine.askScore(up, req)
		}
	}
	return &up.Upstream
}

// A whenceModel is the part of a model that only another Whence lists.
type whenceModel struct {
	Workers *struct {
		Problem string `json:"problem"` // why no worker is healthy
	} `json:"workers"`
	Aliases       []string `json:"aliases"`
	Sampling      []string `json:"sampling"` // fields that its workers honour
	ContextLength int      `json:"context_length"`
	Generates     *bool    `json:"generates"` // older versions do not say
}

// poolsOnly reports that the model does not generate.
func (m *whenceModel) poolsOnly() bool { return m.Generates != nil && !*m.Generates }

// idle refuses a model that has no worker there.
func (m *whenceModel) idle() error {
	if m.Workers == nil || len(m.Sampling) > 0 || m.poolsOnly() {
		return nil
	}
	return beside.Fail(streamerr.Unavailable, nil, "the Whence that generates has no worker for the model: %s", cmp.Or(beside.Clip(m.Workers.Problem, beside.MaxMessage), "it gives no reason"))
}

// list requests the models. The result lacks the properties that only an answer shows.
func (e *Engine) list(ctx context.Context) (*upstream, error) {
	var models struct {
		Data []struct {
			ID      string `json:"id"`
			OwnedBy string `json:"owned_by"`
			Context int    `json:"max_model_len"` // of vLLM and SGLang
			whenceModel
		} `json:"data"`
	}
	if err := e.client.Get(ctx, "/v1/models", &models); err != nil {
		return e.listTEI(ctx, err)
	}
	up := &upstream{kind: unknown, model: e.opts.Model}
	up.Context, up.Vocab, up.EOS = e.model.ContextLength, e.model.VocabSize, e.model.EOS
	for i, m := range models.Data {
		mine := up.model == "" || up.model == m.ID || slices.Contains(m.Aliases, up.model)
		if mine || i == 0 { // the model may have a name that is not listed; the server is the same
			up.kind = kindOf(m.OwnedBy)
		}
		if m.Workers != nil {
			up.kind, m.Context = whence, m.ContextLength
		}
		switch {
		case mine && !up.listed:
			if err := m.idle(); err != nil {
				return nil, err
			}
			up.model, up.listed, up.reported, up.poolsOnly = m.ID, true, m.Sampling, m.poolsOnly()
			if m.Context > 0 && (up.Context == 0 || m.Context < up.Context) {
				up.Context = m.Context
			}
		case m.ID != up.model:
			up.others = append(up.others, m.ID)
		}
	}
	slices.Sort(up.others) // servers list them in any order
	up.Name = up.model
	if !up.listed {
		up.instead = "it lists no model"
		if n := len(models.Data); n > 0 {
			up.instead = fmt.Sprintf("it lists %d, such as %.128q", n, models.Data[0].ID)
		}
	}
	if up.model == "" {
		return nil, errors.New("/v1/models lists no model; --upstream-model names one")
	}
	if up.Context == 0 && e.isTextOnly() {
		up.Context = e.contextOfText(ctx, up.kind)
	}
	if up.Context == 0 {
		return nil, errors.New("neither the server nor config.json has the context length; set max_position_embeddings in config.json")
	}
	if up.kind == unknown { // the owner of an Ollama model is its author
		var version struct{ Version string }
		if e.client.Get(ctx, "/api/version", &version) == nil && version.Version != "" {
			up.kind = ollama
		}
	}
	return up, nil
}

// try proves that the upstream runs the model of the worker's files, and makes it answer with one token, in
// each form of prompt that it might accept, the best form first. An upstream that refuses its trial because it is full has taken this form; its
// description is returned with the error.
func (e *Engine) try(ctx context.Context, up *upstream) (*upstream, error) {
	if e.isTextOnly() && !up.poolsOnly {
		return e.tryText(ctx, up)
	}
	if up.poolsOnly {
		return e.tryOnlyPooling(ctx, up, errMakesNothing)
	}
	forms := []llmv1.Form{llmv1.Form_FORM_TOKEN_IDS, llmv1.Form_FORM_TEXT}
	switch {
	case e.opts.Prompt == PromptIDs:
		forms = forms[:1]
	case e.opts.Prompt == PromptText || up.kind == ollama: // Ollama takes only text, and its refusal of ids would hide its own reason
		forms = forms[1:]
	}
	note, told, err := e.agree(ctx, up)
	if err != nil {
		return nil, err
	}
	var first error
	for _, form := range forms {
		for _, askIDs := range []bool{true, false} {
			if askIDs && !up.kind.tokenIDs {
				continue
			}
			as := *up
			as.prompt, as.askIDs = form, askIDs
			as.Capabilities = up.kind.Capabilities(up.reported...)
			as.Capabilities.Prompt, as.Capabilities.Adapters = form, up.kind.adapters != noAdapters
			err := e.tryAs(ctx, &as)
			if err == nil && !told {
				if note, err = e.agreeByCount(ctx, &as); err != nil {
					return nil, err
				}
			}
			if note != "" {
				as.Notes = []string{note}
			}
			if err == nil {
				err = e.tryForm(ctx, &as)
			}
			switch {
			case err == nil:
				_ = e.tryPooling(ctx, &as) // none: it generates
				e.readAdapters(ctx, &as)
				as.Rendered = e.rendered(ctx, &as)
				return &as, nil
			case up.onlyPools(err):
				return e.tryOnlyPooling(ctx, up, err)
			case errors.Is(err, streamerr.Overloaded) && up.kind != unknown:
				e.readAdapters(ctx, &as)
				return &as, err
			case !errors.Is(err, streamerr.Invalid):
				return nil, err // another form would not help
			}
			if first == nil {
				first = err
			}
		}
	}
	return nil, first
}

// readAdapters reads which adapters an SGLang was started with. Versions that do not list adapters
// in /v1/models have no others.
func (e *Engine) readAdapters(ctx context.Context, up *upstream) {
	if up.kind != sglang {
		return
	}
	var server struct {
		Adapters beside.LoRAPaths `json:"lora_paths"`
	}
	if e.client.Get(ctx, "/get_server_info", &server) == nil {
		up.started = server.Adapters
	}
}

// tryAs makes the upstream answer with one token, and records the form of the answer.
func (e *Engine) tryAs(ctx context.Context, up *upstream) error {
	req := beside.TrialRequest(e.model.TrialPrompt())
	c, err := e.ask(up, req)
	if err != nil {
		return err
	}
	err = beside.Drain(ctx, c)
	if err == nil {
		if u := c.answer.usage; u != nil && int64(u.Prompt) > int64(len(req.GetPrompt())) {
			return streamerr.New(streamerr.Invalid, "the server counted %d tokens of a prompt of %d: it adds a template of its own to prompts, or has another tokenizer",
				u.Prompt, len(req.GetPrompt()))
		} else if u != nil && u.Details.Cached == nil && up.kind == vllm {
			e.silent.Do(func() {
				e.opts.Log.Info("the server does not say how many tokens of a prompt it has cached: usage has no cached_tokens", "upstream", e.opts.Upstream, "then", "start vLLM with --enable-prompt-tokens-details")
			})
		}
	}
	can := up.Capabilities
	if can.Answer = c.answer.form; can.Answer == llmv1.Form_FORM_UNSPECIFIED { // an empty answer, or none, shows nothing
		can.Answer = llmv1.Form_FORM_TEXT
	}
	if can.Answer == llmv1.Form_FORM_TEXT { // the token ids are unknown, and so are their probabilities
		can.Sampling = slices.DeleteFunc(can.Sampling, func(field string) bool { return field == "logprobs" })
	}
	if can.Prompt == llmv1.Form_FORM_TEXT || can.Answer == llmv1.Form_FORM_TEXT {
		can.Sampling = slices.DeleteFunc(can.Sampling, func(field string) bool { return field == "prompt_logprobs" })
	}
	if up.kind == vllm && e.model.Images && can.Answer == llmv1.Form_FORM_TOKEN_IDS {
		can.Images = llmv1.ImageInput_IMAGE_INPUT_CONVERSATION
	}
	up.Resumes = can.Prompt == llmv1.Form_FORM_TOKEN_IDS && can.Answer == llmv1.Form_FORM_TOKEN_IDS
	return err
}

// tryForm makes the upstream answer requests with everything that the requests of clients may have.
func (e *Engine) tryForm(ctx context.Context, up *upstream) error {
	form := beside.FormTrial{Upstream: &up.Upstream, Prompt: e.model.TrialPrompt(), Text: e.model.Texts()}
	form.Ask = func(_ context.Context, req *workerv1.TokenRequest) (beside.Call, error) { return e.ask(up, req) }
	return form.Try(ctx)
}

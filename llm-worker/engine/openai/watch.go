package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// askEvery is how often the upstream is asked how it is, askTimeout how long it may take to answer, and maxMisses how
	// often it may be late: a server that is busy is not gone. One that refuses the connection is, at once.
	askEvery   = time.Second
	askTimeout = time.Second
	maxMisses  = 3
	// tryTimeout is how long the answer of one token may take by which an upstream is known: it may have to wait its turn.
	tryTimeout = 30 * time.Second
)

// An upstream is what is known of the server. It is static.
type upstream struct {
	kind    *kind
	model   string // what it calls the model
	context int    // tokens of prompt and answer together
	prompt  workerv1.Form
	askIDs  bool // with return_token_ids
	answer  workerv1.Form
}

// Info returns how long contexts may be and, if the upstream answers, what it can do.
func (e *Engine) Info() (contextLength int, can *workerv1.Capabilities) {
	up := e.upstream.Load()
	if up == nil {
		return e.model.ContextLength, nil
	}
	return up.context, &workerv1.Capabilities{Prompt: up.prompt, Answer: up.answer, Sampling: up.kind.honours(), Upstream: up.kind.name}
}

// Watch asks the upstream how it is, again and again, until ctx is done. changed is called when its health has changed;
// before the first call it is not healthy.
func (e *Engine) Watch(ctx context.Context, changed func(healthy bool)) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	w := watch{engine: e}
	doubt := e.doubt // nil after one, until the next tick: a server that loses every stream is not asked for each
	for {
		was := e.upstream.Load()
		up, err := w.look(ctx, was)
		if ctx.Err() != nil {
			return
		}
		e.upstream.Store(up)
		switch {
		case was == nil && up != nil:
			e.opts.Log.Info("upstream is healthy", "upstream", e.base, "server", up.kind.name, "model", up.model,
				"prompt", word(up.prompt), "answer", word(up.answer), "context_length", up.context)
			changed(true)
		case was != nil && up == nil:
			e.opts.Log.Warn("upstream is not healthy", "upstream", e.base, "err", err)
			changed(false)
		case err != nil && err.Error() != w.said:
			e.opts.Log.Warn("upstream is not usable", "upstream", e.base, "err", err)
		}
		w.said = ""
		if err != nil {
			w.said = err.Error()
		}
		select {
		case <-tick.C:
			doubt = e.doubt
		case <-doubt:
			w.doubt, doubt = true, nil
		case <-ctx.Done():
			return
		}
	}
}

func word(form workerv1.Form) string {
	return strings.ToLower(strings.TrimPrefix(form.String(), "FORM_"))
}

// suspect has the upstream asked how it is, now, if err looks as if it were no longer what it was.
func (e *Engine) suspect(err error) {
	if errors.Is(err, streamerr.Unavailable) || errors.Is(err, streamerr.PeerLost) {
		select {
		case e.doubt <- struct{}{}:
		default:
		}
	}
}

// A watch is what Watch remembers from one look to the next.
type watch struct {
	engine *Engine
	doubt  bool   // another server may be there by now
	misses int    // how often it was late, on end
	said   string // what was logged last, so that it is not logged each second
}

// look returns what the upstream is; nil, and why, if it cannot be used.
func (w *watch) look(ctx context.Context, was *upstream) (*upstream, error) {
	listed, err := w.engine.list(ctx)
	if err != nil {
		w.misses++
		if was != nil && errors.Is(err, context.DeadlineExceeded) && w.misses < maxMisses {
			return was, nil
		}
		return nil, err
	}
	w.misses = 0
	if was != nil && !w.doubt && was.kind == listed.kind && was.model == listed.model && was.context == listed.context {
		return was, nil
	}
	up, err := w.engine.try(ctx, listed)
	if was != nil && (errors.Is(err, streamerr.Overloaded) || errors.Is(err, context.DeadlineExceeded)) {
		return was, nil // too busy to be known again; next time
	}
	w.doubt = false
	return up, err
}

// list asks for the models. What it returns lacks what only an answer can show.
func (e *Engine) list(ctx context.Context) (*upstream, error) {
	var models struct {
		Data []struct {
			ID      string `json:"id"`
			OwnedBy string `json:"owned_by"`
			Context int    `json:"max_model_len"` // of vLLM and SGLang
		} `json:"data"`
	}
	if err := e.get(ctx, "/v1/models", &models); err != nil {
		return nil, err
	}
	up := &upstream{kind: unknown, model: e.opts.Model, context: e.model.ContextLength}
	for i, m := range models.Data {
		mine := up.model == "" || up.model == m.ID
		if mine || i == 0 { // the model may go by a name that is not listed; the server is the same
			up.kind = kindOf(m.OwnedBy)
		}
		if mine {
			up.model = m.ID
			if m.Context > 0 {
				up.context = min(up.context, m.Context)
			}
			break
		}
	}
	if up.model == "" {
		return nil, errors.New("/v1/models lists no model; --upstream-model names one")
	}
	if up.kind == unknown { // Ollama's models belong to whoever made them
		var version struct{ Version string }
		if e.get(ctx, "/api/version", &version) == nil && version.Version != "" {
			up.kind = ollama
		}
	}
	return up, nil
}

// get reads a JSON object.
func (e *Engine) get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := e.ask(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return refused(resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxEvent)).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// trial is what is sent to see what comes back. Any text will do whose tokens are those of its characters.
const trial = "Hi"

// try has the upstream answer with one token, in the ways that it might understand, the best first.
func (e *Engine) try(ctx context.Context, up *upstream) (*upstream, error) {
	forms := []workerv1.Form{workerv1.Form_FORM_TOKEN_IDS, workerv1.Form_FORM_TEXT}
	switch e.opts.Prompt {
	case PromptIDs:
		forms = forms[:1]
	case PromptText:
		forms = forms[1:]
	}
	var first error
	for _, form := range forms {
		for _, askIDs := range []bool{true, false} {
			if askIDs && !up.kind.tokenIDs {
				continue
			}
			as := *up
			as.prompt, as.askIDs = form, askIDs
			err := e.tryAs(ctx, &as)
			if err == nil {
				return &as, nil
			}
			if !errors.Is(err, streamerr.Invalid) {
				return nil, err // it is not about how it was asked
			}
			if first == nil {
				first = err
			}
		}
	}
	return nil, first
}

// tryAs has the upstream answer with one token, and notes what the answer is made of.
func (e *Engine) tryAs(ctx context.Context, up *upstream) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	one, cold := uint32(1), float32(0)
	req := &workerv1.TokenRequest{
		Prompt:   e.model.Tokenizer.Encode(trial, true),
		Sampling: &streamv1.Sampling{MaxTokens: &one, Temperature: &cold},
	}
	body, err := e.body(up, req)
	if err != nil {
		return err
	}
	answer, err := newAnswer(e.model, req)
	if err != nil {
		return err
	}
	_, err = e.read(ctx, body, func(resp *http.Response) (bool, error) {
		return answer.pass(ctx, newEvents(resp.Body, len(req.GetPrompt())), func(*workerv1.GenerateResponse) bool { return true })
	})
	if err != nil {
		return err
	}
	if u := answer.usage; u != nil && int64(u.Prompt) > int64(len(req.GetPrompt())) {
		return streamerr.New(streamerr.Invalid, "the server reads %d tokens where %d were sent: it puts a template of its own around prompts, or has another tokenizer",
			u.Prompt, len(req.GetPrompt()))
	}
	up.answer = answer.form
	if up.answer == workerv1.Form_FORM_UNSPECIFIED { // an empty answer shows nothing
		up.answer = workerv1.Form_FORM_TEXT
	}
	return nil
}

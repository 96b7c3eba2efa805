package openai

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// tryPoolingTimeout bounds the trials of one word that show whether a server that generates embeds and
// rates documents, too. It is shorter than TryTimeout, because most servers are started to generate.
const tryPoolingTimeout = 5 * time.Second

// errMakesNothing is why a server cannot be used that has said that its model does not generate.
var errMakesNothing = errors.New("the server that generates neither generates, nor embeds, nor rates documents")

// listTEI describes a text-embeddings-inference. It is list for a server that has no list of models; err is
// the answer to the request for it, and the error if the server is another.
func (e *Engine) listTEI(ctx context.Context, err error) (*upstream, error) {
	var info struct {
		Model  string          `json:"model_id"`
		Type   json.RawMessage `json:"model_type"` // with the kind of model as its only member
		Length int             `json:"max_input_length"`
		Batch  int             `json:"max_client_batch_size"`
	}
	if !errors.Is(err, streamerr.NotFound) || e.client.Get(ctx, "/info", &info) != nil || info.Model == "" || info.Type == nil || info.Length <= 0 {
		return nil, err
	}
	up := &upstream{kind: tei, model: info.Model, listed: true, poolsOnly: true, batch: info.Batch}
	up.Name, up.Context, up.Vocab, up.EOS = info.Model, info.Length, e.model.VocabSize, e.model.EOS
	return up, nil
}

// onlyPools reports whether a server's refusal of a completion says that its model does not generate.
func (u *upstream) onlyPools(refusal error) bool {
	switch {
	case errors.Is(refusal, beside.ErrNoGeneration):
		return true
	case errors.Is(refusal, streamerr.NotFound):
		return u.listed // the model is there, so the route is not
	case u.kind == llamacpp: // it tries to generate with an encoder
		return errors.Is(refusal, streamerr.EngineFailed) && !errors.Is(refusal, beside.ErrKeyRefused)
	default:
		return false
	}
}

// tryOnlyPooling finds out what a server makes whose model does not generate. refusal is how the server has
// said so; it is the error if the server makes nothing else.
func (e *Engine) tryOnlyPooling(ctx context.Context, listed *upstream, refusal error) (*upstream, error) {
	as := *listed
	as.poolsOnly, as.prompt = true, llmv1.Form_FORM_TOKEN_IDS
	form := as.prompt
	if e.isTextOnly() {
		as.prompt, form = llmv1.Form_FORM_TEXT, llmv1.Form_FORM_CONVERSATION
	}
	as.Capabilities = &llmv1.Capabilities{Upstream: as.kind.Upstream, Prompt: form}
	switch err := e.tryPooling(ctx, &as); {
	case err != nil:
		return nil, err
	case e.opts.HandsOver || as.embeds == llmv1.Form_FORM_UNSPECIFIED && as.scores == nil:
		return nil, refusal
	}
	as.Facts = append(as.Facts, "the model does not generate, and "+capability.Abilities(as.embeds != llmv1.Form_FORM_UNSPECIFIED, as.scores != nil))
	return &as, nil
}

// tryPooling makes the upstream embed one word and rate one, and records whether and how it does. Most
// servers that generate refuse; they can be used all the same. The error says that a server that only pools
// was too busy, or is away.
func (e *Engine) tryPooling(ctx context.Context, up *upstream) error {
	if !up.poolsOnly {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tryPoolingTimeout)
		defer cancel()
	}
	req := &workerv1.EmbedRequest{Texts: []string{beside.TrialPrompt}}
	forms := []llmv1.Form{llmv1.Form_FORM_TEXT}
	if !e.isTextOnly() && up.kind != tei {
		req = &workerv1.EmbedRequest{Inputs: []*workerv1.TokenIds{{Ids: e.model.Tokenizer.Encode(beside.TrialPrompt, true)}}}
		forms = slices.Compact([]llmv1.Form{up.prompt, llmv1.Form_FORM_TEXT})
	}
	for _, form := range forms {
		up.embeds = form
		err := tryOnce(ctx, req, func(req *workerv1.EmbedRequest) (beside.PoolingCall[*workerv1.EmbedResponse], error) {
			return e.askEmbed(up, req)
		})
		if err == nil {
			break
		}
		up.embeds = llmv1.Form_FORM_UNSPECIFIED
		if up.poolsOnly && isBusy(err) {
			return err
		}
		if !errors.Is(err, streamerr.Invalid) && !errors.Is(err, streamerr.EngineFailed) {
			break // another form would not help
		}
	}
	for _, form := range up.kind.scorers {
		up.scores = form
		err := tryOnce(ctx, &workerv1.ScoreRequest{Queries: []string{beside.TrialPrompt}, Documents: []string{beside.TrialPrompt}},
			func(req *workerv1.ScoreRequest) (beside.PoolingCall[*workerv1.ScoreResponse], error) {
				return e.askScore(up, req)
			})
		if err == nil {
			break
		}
		up.scores = nil
		if up.poolsOnly && isBusy(err) {
			return err
		}
	}
	return nil
}

// tryOnce sends a request and discards the answer.
func tryOnce[Req, Resp any](ctx context.Context, req Req, ask func(Req) (beside.PoolingCall[Resp], error)) error {
	call, err := ask(req)
	if err == nil {
		_, err = beside.TryPooling(ctx, call)
	}
	return err
}

// isBusy reports that a trial says nothing about what the server can do: it was too busy, or is away.
func isBusy(err error) bool {
	return beside.Late(err) || errors.Is(err, streamerr.Overloaded) || errors.Is(err, streamerr.Unavailable) || errors.Is(err, streamerr.PeerLost) || errors.Is(err, beside.ErrKeyRefused)
}

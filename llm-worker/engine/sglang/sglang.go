// Package sglang is an engine that generates on an SGLang beside the worker: over its gRPC service
// if the upstream is a host:port, over POST /generate if it is a URL. Both take token ids and
// return token ids.
//
// A stopped stream is aborted by its request's id, and then its call is reset or its connection
// closed; the stop is confirmed when SGLang has answered the abort. SGLang aborts all requests
// whose ids begin with the given id, so no request's id is a prefix of another. SGLang honours
// seeds only over HTTP, with --enable-deterministic-inference; otherwise the engine refuses them.
package sglang

import (
	"context"
	"slices"
	"strings"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overgrpc"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
)

// Sampling returns the fields of whence.llm.v1.Sampling that SGLang honours. seeded reports that it
// honours seeds.
func Sampling(seeded bool) []string {
	fields := []string{
		"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias",
		"min_tokens", "max_tokens", "ignore_eos", "stop_token_ids",
	}
	if seeded {
		fields = slices.Insert(fields, slices.Index(fields, "min_tokens"), "seed")
	}
	return fields
}

// Options are beside.Options and a key. Upstream is a host:port or a URL.
type Options struct {
	beside.Options
	Key string // for a URL: sent as a bearer token unless ""
}

// OverHTTP reports whether upstream is a URL.
func OverHTTP(upstream string) bool { return strings.Contains(upstream, "://") }

// Validate checks o. Its errors name the flags.
func (o *Options) Validate() error {
	if OverHTTP(o.Upstream) {
		return overhttp.Validate(o.Upstream, o.Key)
	}
	return overgrpc.Validate(o.Upstream)
}

// An Engine generates on an SGLang. Generate works while Watch finds the SGLang healthy.
type Engine struct {
	*beside.Engine
	close func() error
}

// New returns an engine; the options must be valid. config is the operator's description of the
// model. Over gRPC it may be nil, because SGLang describes its model; over HTTP SGLang does not
// report the size of the vocabulary.
func New(opts Options, config *beside.Config) (*Engine, error) {
	if OverHTTP(opts.Upstream) {
		g := &generator{client: overhttp.New(opts.Upstream, opts.Key), config: config}
		return &Engine{beside.New(opts.Options, g.look), func() error { return nil }}, nil
	}
	s, err := newScheduler(opts.Upstream, config)
	if err != nil {
		return nil, err
	}
	return &Engine{beside.New(opts.Options, s.look), s.conn.Close}, nil
}

// Watch is beside.Engine's Watch. When it returns, the connection is closed.
func (e *Engine) Watch(ctx context.Context, changed func(healthy bool)) {
	defer e.close() //nolint:errcheck // nothing is lost: the streams have ended
	e.Engine.Watch(ctx, changed)
}

// capabilities returns the capabilities of an SGLang without adapters. The gRPC service takes only the number that SGLang itself
// has given to an adapter, which it does not tell. Nor does the gRPC service take images: it wants the tensors that SGLang's HTTP
// process makes of them.
func capabilities(seeded bool) *llmv1.Capabilities {
	return &llmv1.Capabilities{
		Prompt: llmv1.Form_FORM_TOKEN_IDS, Answer: llmv1.Form_FORM_TOKEN_IDS, Sampling: Sampling(seeded), Upstream: "sglang",
	}
}

// topK returns SGLang's top_k: -1 keeps all tokens.
func topK(s *llmv1.Sampling) int32 {
	if s.GetTopK() == 0 {
		return -1
	}
	return int32(min(s.GetTopK(), 1<<31-1)) //nolint:gosec // bounded
}

// orOne returns the requested value, or 1, which has no effect.
func orOne(asked *float32) float32 {
	if asked != nil {
		return *asked
	}
	return 1
}

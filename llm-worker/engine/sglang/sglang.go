// Package sglang is an engine that lets an SGLang beside the worker generate: over its gRPC service where the upstream is a
// host:port, over POST /generate where it is a URL. Either way token ids go in and token ids come out.
//
// A stream that is stopped is aborted by its request's id, and then its call is reset or its connection closed; the stop is
// confirmed when SGLang has answered the abort. SGLang aborts all requests whose ids begin as the one that it is told, so each
// has an id that no other begins with. Seeds it honours only over HTTP, with --enable-deterministic-inference: else they are
// refused.
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

// Sampling are the fields of whence.llm.v1.Sampling that SGLang honours; seeded says that it does seeds.
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

// Options are those of beside, and a key. Upstream is a host:port or a URL.
type Options struct {
	beside.Options
	Key string // for a URL: sent as a bearer token if not ""
}

// OverHTTP reports whether upstream is a URL.
func OverHTTP(upstream string) bool { return strings.Contains(upstream, "://") }

// Validate reports what is wrong with o, by the names of flags.
func (o *Options) Validate() error {
	if OverHTTP(o.Upstream) {
		return overhttp.Validate(o.Upstream, o.Key)
	}
	return overgrpc.Validate(o.Upstream)
}

// An Engine lets an SGLang generate. Generate works while Watch finds it well.
type Engine struct {
	*beside.Engine
	close func() error
}

// New returns an engine; the options must be valid. config is what the operator says of the model. Over gRPC nil leaves that to
// SGLang; over HTTP it does not say how large its vocabulary is.
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

// Watch is that of beside.Engine; when it returns, the connection is closed.
func (e *Engine) Watch(ctx context.Context, changed func(healthy bool)) {
	defer e.close() //nolint:errcheck // nothing is lost: the streams have ended
	e.Engine.Watch(ctx, changed)
}

// capabilities are what an SGLang can do.
func capabilities(seeded bool) *llmv1.Capabilities {
	return &llmv1.Capabilities{
		Prompt: llmv1.Form_FORM_TOKEN_IDS, Answer: llmv1.Form_FORM_TOKEN_IDS, Sampling: Sampling(seeded), Upstream: "sglang",
	}
}

// topK is SGLang's: -1 keeps all.
func topK(s *llmv1.Sampling) int32 {
	if s.GetTopK() == 0 {
		return -1
	}
	return int32(min(s.GetTopK(), 1<<31-1)) //nolint:gosec // bounded
}

// orOne returns what was asked for, else 1, which does nothing where it stands.
func orOne(asked *float32) float32 {
	if asked != nil {
		return *asked
	}
	return 1
}

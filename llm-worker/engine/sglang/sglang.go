// Package sglang is an engine that generates on an SGLang beside the worker: over its gRPC service
// if the upstream is a host:port, over POST /generate if it is a URL. Both take token ids and
// return token ids.
//
// A stopped stream is aborted by its request's id, and then its call is reset or its connection
// closed; the stop is confirmed when SGLang has answered the abort. SGLang aborts all requests
// whose ids begin with the given id, so no request's id is a prefix of another. Package features lists
// what each of the two honours. The gRPC service takes no images, only the tensors that SGLang's HTTP
// process makes of them.
package sglang

import (
	"context"
	"strings"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overgrpc"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
)

// Options are beside.Options and a key. Upstream is a host:port or a URL.
type Options struct {
	beside.Options
	Key   string         // for a URL: sent as a bearer token unless ""
	Files *lexicon.Model // with the model's tokenizer; nil if the worker has none
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
		g := newGenerator(&opts, config)
		e := &Engine{beside.New(opts.Options, g.look), func() error { g.client.Close(); return nil }}
		e.ReadLoad(func(ctx context.Context) (*beside.ServerLoad, error) {
			return g.client.Load(ctx, overhttp.SGLangMetrics)
		})
		return e, nil
	}
	s, err := newScheduler(&opts, config)
	if err != nil {
		return nil, err
	}
	e := &Engine{beside.New(opts.Options, s.look), s.conn.Close}
	e.ReadLoad(s.load)
	return e, nil
}

// Watch is beside.Engine's Watch. When it returns, the connection to the server is
// closed, or idle connections are.
func (e *Engine) Watch(ctx context.Context, changed func(healthy bool)) {
	defer e.close() //nolint:errcheck // nothing is lost: the streams have ended
	e.Engine.Watch(ctx, changed)
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

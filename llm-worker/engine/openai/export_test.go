package openai

import (
	"context"
	"crypto/x509"
	"io"
	"net"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
)

// Trust makes an engine trust the certificates of pool.
func Trust(e *Engine, pool *x509.CertPool) {
	e.client.Trust(pool)
}

// DialWith makes an engine connect through dial.
func DialWith(e *Engine, dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	e.client.DialWith(dial)
}

// Answer reads the body of a response.
func Answer(m *lexicon.Model, req *workerv1.TokenRequest, body io.Reader) (ids []uint32, end *llmv1.End, err error) {
	a, err := newAnswer(m, req, int(req.GetSampling().GetMaxTokens()), beside.VLLM)
	if err != nil {
		return nil, nil, err
	}
	client := overhttp.New("http://server", "")
	client.Understand(beside.VLLM)
	c := &call{stream: client.Stream("/", nil, len(req.GetPrompt())), answer: a}
	c.stream.Read(body)
	for end == nil && err == nil {
		var more []uint32
		more, end, err = c.Next()
		ids = append(ids, more...)
	}
	return ids, end, err
}

// Try lists the models of the upstream and makes it answer with one token.
func (e *Engine) Try(ctx context.Context) error {
	_, err := newLook(e).look(ctx, nil, false)
	return err
}

// Info returns how long contexts may be and, if the upstream answers, what it can do.
func (e *Engine) Info() (contextLength int, can *llmv1.Capabilities) {
	up := e.Upstream()
	if up == nil {
		return e.model.ContextLength, nil
	}
	return up.Context, up.Capabilities
}

// Embeds reports whether the upstream makes vectors.
func (e *Engine) Embeds() bool {
	up := e.Upstream()
	return up != nil && up.AskEmbed != nil
}

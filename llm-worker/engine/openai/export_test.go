package openai

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// Trust makes an engine trust the certificates of pool.
func Trust(e *Engine, pool *x509.CertPool) {
	e.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool}
}

// Answer reads the body of a response.
func Answer(ctx context.Context, m *Model, req *workerv1.TokenRequest, body io.Reader) (ids []uint32, end *streamv1.End, err error) {
	a, err := newAnswer(m, req)
	if err != nil {
		return nil, nil, err
	}
	_, err = a.pass(ctx, newEvents(body, len(req.GetPrompt())), func(out *workerv1.GenerateResponse) bool {
		ids = append(ids, out.GetTokens().GetIds()...)
		return true
	})
	if err != nil {
		return ids, nil, err
	}
	return ids, a.end(), nil
}

// Characters gives parts to characters as they come in JSON.
func Characters(parts ...[]byte) string {
	var c characters
	var text string
	for _, p := range parts {
		text += c.next(p)
	}
	return text + c.flush()
}

// Spell is the text that a server is given for a prompt.
func (m *Model) Spell(prompt []uint32) (string, error) { return m.spell(prompt) }

package anthropic_test

import (
	"testing"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// FuzzParseCount: a body asks for the tokens of messages, or is INVALID.
func FuzzParseCount(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"system":[{"type":"text","text":"be nice"}]}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":""}}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := anthropic.ParseCount(body, nil)
		switch {
		case err != nil && streamerr.As(err).Reason != streamerr.Invalid:
			t.Errorf("%q: %v", body, err)
		case err == nil && len(c.Request.GetMessages()) == 0:
			t.Errorf("%q asks for the tokens of nothing", body)
		}
	})
}

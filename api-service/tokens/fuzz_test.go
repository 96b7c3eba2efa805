package tokens_test

import (
	"testing"

	"github.com/whence-dev/whence/api-service/tokens"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// FuzzParse: a body is a request that a chat-service can answer, or an INVALID error with a text.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"model":"m","prompt":"hello","add_special_tokens":false}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"return_token_strs":true}`))
	f.Add([]byte(`{"model":"m","tokens":[1,2,4294967295]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		asked, err := tokens.ParseTokenize(body, nil)
		if err == nil && len(asked.GetMessages()) == 0 && asked.GetAddGenerationPrompt() {
			t.Errorf("%q renders no messages", body)
		}
		invalid(t, body, err)
		_, err = tokens.ParseDetokenize(body, nil)
		invalid(t, body, err)
	})
}

func invalid(t *testing.T, body []byte, err error) {
	t.Helper()
	if e := streamerr.As(err); err != nil && (e.Reason != streamerr.Invalid || e.Text() == "") {
		t.Errorf("%q: %v", body, err)
	}
}

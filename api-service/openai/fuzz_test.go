package openai_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// FuzzParseCompletion: a body of POST /v1/completions has prompts, or is INVALID.
func FuzzParseCompletion(f *testing.F) {
	f.Add([]byte(`{"model":"m","prompt":"hi","logprobs":2,"stop":["a"]}`))
	f.Add([]byte(`{"model":"m","prompt":[[1,2],[3]],"n":2,"echo":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := openai.ParseCompletion(body, nil)
		if err != nil {
			if e := streamerr.As(err); e.Reason != streamerr.Invalid || e.Text() == "" {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		if len(c.Request.GetPrompts()) == 0 {
			t.Errorf("%q has no prompt", body)
		}
		if _, err := proto.Marshal(c.Request); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	})
}

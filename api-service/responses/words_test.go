package responses_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/responses"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestLongInputHasTheWordsOfResponses checks the words by which clients decide to shorten the input.
func TestLongInputHasTheWordsOfResponses(t *testing.T) {
	for want, e := range map[string]*streamerr.Error{
		"this model. Please adjust your input and try again: it has 9 tokens, and the maximum context length is 8 tokens.": streamerr.TooLong("input", 9, 8),
		"this model: it is": streamerr.InvalidParam("input", "it is").WithCode(streamerr.CodeContextLength),
	} {
		_, body := responses.Form.Refusal(http.StatusBadRequest, e, "s")
		if !strings.Contains(string(body), `"message":"Your input exceeds the context window of `+want+`"`) {
			t.Errorf("%s, want %q", body, want)
		}
	}
}

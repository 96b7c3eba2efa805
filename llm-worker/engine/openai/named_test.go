package openai

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/whence-dev/whence/llm-worker/engine/beside/likely"
)

func TestNamedTokensBecomeIDs(t *testing.T) {
	for text, want := range map[string][]likely.Position{
		`null`: nil,
		`{"tokens":["token_id:7"],"token_logprobs":[-3]}`: {{Token: likely.Token{ID: 7, Logprob: -3}}},
		`{"tokens":["token_id:7"],"token_logprobs":[-3],"top_logprobs":[{"token_id:9":-1}]}`: {
			{Token: likely.Token{ID: 7, Logprob: -3}, Top: []likely.Token{{ID: 9, Logprob: -1}}},
		},
	} {
		var l *namedLogprobs
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		if got, err := l.positions(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

func TestLogprobsWithoutTokenIDsAreRefused(t *testing.T) {
	for _, text := range []string{
		`{"tokens":["token_id:5"],"token_logprobs":[],"top_logprobs":[{}]}`, `{"tokens":["x"],"token_logprobs":[-1]}`,
		`{"tokens":["token_id:5"],"token_logprobs":[-1],"top_logprobs":[{"x":-1}]}`, `{"tokens":["token_id:5","token_id:6"],"token_logprobs":[-1,-2],"top_logprobs":[{}]}`,
		`{"tokens":["token_id:99999999999"],"token_logprobs":[-1]}`,
	} {
		var l *namedLogprobs
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		if got, err := l.positions(); err == nil {
			t.Errorf("%s is read as %v", text, got)
		}
	}
}

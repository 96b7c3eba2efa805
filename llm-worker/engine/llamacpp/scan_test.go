package llamacpp

import (
	"testing"

	"github.com/whence-dev/whence/internal/jsonscan/jsonscantest"
)

// FuzzEvent: an event is read as encoding/json reads it.
func FuzzEvent(f *testing.F) {
	jsonscantest.Fuzz(f, (*event).scan,
		`{"index":0,"content":" the","tokens":[262],"stop":false,"id_slot":-1,"tokens_predicted":3,"tokens_evaluated":9,"timings":{"cache_n":0,"prompt_n":9,"prompt_ms":12.5,"predicted_n":3}}`,
		`{"content":"\ud83d\ude80","tokens":[1,2],"stop":false,"tokens_predicted":5,"tokens_evaluated":9,"completion_probabilities":[{"id":2,"token":"x","bytes":[120],"logprob":-0.5,"top_logprobs":[{"id":2,"logprob":-0.5}]}]}`,
		`{"content":"","tokens":[],"stop":true,"stop_type":"limit","tokens_predicted":5,"tokens_evaluated":9,"generation_settings":{"seed":4294967295,"temperature":0.8,"samplers":["top_k"]},"timings":{"prompt_n":9}}`,
		`{"error":{"code":500,"message":"no","type":"server_error"}}`,
	)
}

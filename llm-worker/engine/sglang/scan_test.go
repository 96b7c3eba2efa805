package sglang

import (
	"testing"

	"github.com/whence-dev/whence/internal/jsonscan/jsonscantest"
)

// FuzzEvent: an event is read as encoding/json reads it.
func FuzzEvent(f *testing.F) {
	jsonscantest.Fuzz(f, (*event).scan,
		`{"text":" the","output_ids":[262],"meta_info":{"id":"x","finish_reason":null,"prompt_tokens":3,"weight_version":"default","completion_tokens":1,"cached_tokens":0,"e2e_latency":null}}`,
		`{"text":" the","output_ids":[262,5],"meta_info":{"finish_reason":{"type":"length","length":2},"prompt_tokens":3,"completion_tokens":2,"cached_tokens":1,"output_token_logprobs":[[-0.5,262,null],[null,5,"x"]],"output_top_logprobs":[[[-0.5,262,null]],null]}}`,
		`{"output_ids":[],"meta_info":{"finish_reason":{"type":"abort","message":"no","status_code":503}}}`,
		`{"error":{"message":"no"}}`,
	)
}

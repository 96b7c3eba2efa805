// Package features is the table of what each engine honours, with one row for each engine and each
// way to ask it.
//
// Engines take their capabilities from their rows, so a request that a row does not cover is refused,
// and docs/reference/engines.md shows the same rows: a test renders them.
package features

import (
	"slices"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/llm-worker/sample"
)

// A Row says what an engine honours.
type Row struct {
	Title    string // as docs/reference/engines.md shows it
	Upstream string // the make of the server; "" for an engine in the worker
	// Lacks names the fields of whence.llm.v1.Sampling that the engine does not honour, and Reported those
	// that it honours only if the server reports so.
	Lacks, Reported []string
	// Unsure names the fields that are passed on although some servers ignore them without saying
	// so.
	Unsure []string
	Guides llmv1.GuideSupport // of an engine that honours guide
	// SampledLogprobs says that log-probabilities are not the model's own; see Capabilities.
	SampledLogprobs bool
}

const (
	forms  = llmv1.GuideSupport_GUIDE_SUPPORT_FORMS
	schema = llmv1.GuideSupport_GUIDE_SUPPORT_SCHEMA
)

// The rows, in the order of the table.
var (
	Embedded = &Row{Title: "embedded", Guides: forms}
	Sim      = &Row{Title: "sim", Lacks: noLogprobs, Guides: forms}
	VLLM     = &Row{Title: "vllm", Upstream: "vllm", Guides: forms}
	// SGLang's gRPC service has no field for seeds.
	SGLangGRPC = &Row{Title: "sglang, gRPC", Upstream: "sglang", Lacks: []string{"seed", "prompt_logprobs"}, Guides: forms, SampledLogprobs: true}
	// An SGLang older than XGrammar's structural tags fails on one, so /generate gets only schemas, unless
	// the server reports a version that knows the tags.
	SGLangHTTP = &Row{Title: "sglang, HTTP", Upstream: "sglang", Reported: []string{"seed"}, Lacks: []string{"prompt_logprobs"}, Guides: schema, SampledLogprobs: true}

	// The server's adapters have numbers, and requests names.
	LlamaCPP = &Row{Title: "llamacpp", Upstream: "llama.cpp", Lacks: []string{"min_tokens", "stop_token_ids", "prompt_logprobs"}, Guides: forms}
	// An adapter is a model of its own there. A trial shows whether the version has log-probabilities.
	Ollama = &Row{
		Title: "ollama", Upstream: "ollama", Guides: schema,
		Lacks: []string{"logit_bias", "min_tokens", "ignore_eos", "stop_token_ids", "prompt_logprobs"}, Reported: []string{"logprobs"}, Unsure: ollamaPenalties,
	}

	OpenAIVLLM = &Row{Title: "openai: vLLM", Upstream: "vllm", Guides: forms}
	// The logprobs of SGLang's /v1/completions have no token ids.
	OpenAISGLang   = &Row{Title: "SGLang", Upstream: "sglang", Lacks: noLogprobs, Unsure: []string{"seed"}, Guides: schema}
	OpenAILlamaCPP = &Row{Title: "llama.cpp", Upstream: "llama.cpp", Lacks: slices.Concat([]string{"min_tokens", "stop_token_ids"}, noLogprobs), Guides: schema}
	OpenAIOllama   = &Row{Title: "Ollama", Upstream: "ollama", Lacks: slices.Concat([]string{"logit_bias"}, beyondOpenAI), Unsure: ollamaPenalties}
	// Another Whence reports the fields that its workers honour.
	OpenAIWhence = &Row{Title: "Whence", Upstream: "whence", Reported: sample.Fields(), Guides: schema}
	// Hugging Face's text-embeddings-inference does not generate.
	OpenAITEI = &Row{Title: "TEI", Upstream: "tei", Lacks: sample.Fields()}
	// A server of no known make gets the fields of OpenAI's API.
	OpenAIOther = &Row{Title: "others", Upstream: "unknown", Lacks: beyondOpenAI}
)

// beyondOpenAI are the fields that OpenAI's /v1/completions does not have, and logprobs, which have no
// token ids there.
var beyondOpenAI = []string{"top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids", "logprobs", "guide", "prompt_logprobs"}

// noLogprobs are the fields that ask for log-probabilities.
var noLogprobs = []string{"logprobs", "prompt_logprobs"}

// ollamaPenalties are the fields that Ollama passes to llama.cpp, but not to the runner of its own, which
// runs newer models.
var ollamaPenalties = []string{"repetition_penalty", "frequency_penalty", "presence_penalty"}

// Table returns all rows.
func Table() []*Row {
	return []*Row{Embedded, Sim, VLLM, SGLangGRPC, SGLangHTTP, LlamaCPP, Ollama, OpenAIVLLM, OpenAISGLang, OpenAILlamaCPP, OpenAIOllama, OpenAIWhence, OpenAIOther}
}

// Has reports whether the engine honours a field of Sampling. reported names the fields that the server
// has reported to honour.
func (r *Row) Has(field string, reported ...string) bool {
	return !slices.Contains(r.Lacks, field) && (!slices.Contains(r.Reported, field) || slices.Contains(reported, field))
}

// IsUnsure reports whether a field is passed on although the server may ignore it.
func (r *Row) IsUnsure(field string) bool { return slices.Contains(r.Unsure, field) }

// Sampling returns the fields of Sampling that the engine honours, in the proto's order.
func (r *Row) Sampling(reported ...string) []string {
	return slices.DeleteFunc(sample.Fields(), func(field string) bool { return !r.Has(field, reported...) })
}

// Capabilities returns the capabilities of the engine on a server that takes and returns token ids.
// The engine adds what only its server can tell.
func (r *Row) Capabilities(reported ...string) *llmv1.Capabilities {
	return &llmv1.Capabilities{
		Prompt: llmv1.Form_FORM_TOKEN_IDS, Answer: llmv1.Form_FORM_TOKEN_IDS, Sampling: r.Sampling(reported...), Upstream: r.Upstream,
		Guides: r.Guides, GuideFields: capability.GuideFields(), SampledLogprobs: r.SampledLogprobs,
	}
}

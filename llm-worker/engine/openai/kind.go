package openai

import (
	"math"
	"slices"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/llm-worker/engine/features"
)

// A kind describes a make of server. These servers ignore fields that they do not know, so a field
// that would be ignored must be refused instead.
type kind struct {
	*features.Row
	owner    string // the owner of its models in /v1/models
	tokenIDs bool   // it may answer return_token_ids
	adapters adapterField
	// refuses reports whether the server refuses the name of an adapter that it has not loaded. Others may
	// let the base model answer, so the server must list the adapter first.
	refuses bool
	metrics overhttp.LoadMetrics // none if the server has no metrics of its load
	dialect beside.Dialect       // of its errors; nil if it has none of its own
	// busy reports that the server may generate on after its client has closed the connection: llama.cpp looks
	// for clients that have left only between two batches, and a batch may take minutes.
	busy bool
	// scorers are the forms in which it may rate documents, the best first.
	scorers []*scorer
}

// An adapterField is the field of a body in which a server takes the name of a LoRA adapter.
type adapterField uint8

const (
	noAdapters adapterField = iota // the server has no names for adapters
	asModel                        // in model, instead of the base model
	asLoRAPath                     // in lora_path
)

var (
	vllm = &kind{
		Row: features.OpenAIVLLM, owner: "vllm", tokenIDs: true, adapters: asModel, refuses: true, metrics: overhttp.VLLMMetrics, dialect: beside.VLLM,
		scorers: []*scorer{scoreAPI, rerankAPI},
	}
	sglang = &kind{Row: features.OpenAISGLang, owner: "sglang", tokenIDs: true, adapters: asLoRAPath, metrics: overhttp.SGLangMetrics, scorers: []*scorer{rerankAPI}}
	// Its adapters have numbers.
	llamacpp = &kind{Row: features.OpenAILlamaCPP, owner: "llamacpp", metrics: overhttp.LlamaCPPMetrics, busy: true, scorers: []*scorer{rerankAPI}}
	// An adapter is a model of its own there.
	ollama = &kind{Row: features.OpenAIOllama, owner: "library", dialect: beside.Ollama, busy: true}
	// Another Whence is recognised by its list of models, whose owners can have any name.
	whence = &kind{Row: features.OpenAIWhence, tokenIDs: true, adapters: asModel, refuses: true, scorers: []*scorer{scoreAPI}}
	// Hugging Face's text-embeddings-inference has no list of models, and describes its own at /info.
	tei = &kind{Row: features.OpenAITEI, scorers: []*scorer{teiAPI}}
	// unseen is the kind of a server that has not listed its models yet.
	unseen = &kind{Row: features.OpenAIOther}
	// An unknown server may be a proxy for vLLM, so it is asked for token ids.
	unknown = &kind{Row: features.OpenAIOther, tokenIDs: true, adapters: asModel, dialect: beside.VLLM, scorers: []*scorer{scoreAPI, rerankAPI}}
)

// seed maps a seed to one that the server accepts. vLLM takes those of 63 bits over HTTP, another Whence all.
func (k *kind) seed(seed uint64) uint64 {
	if k == whence || k == vllm && seed <= math.MaxInt64 {
		return seed
	}
	return beside.Seed(seed)
}

// kindOf returns the kind whose models have this owner.
func kindOf(owner string) *kind {
	known := []*kind{vllm, sglang, llamacpp, ollama}
	if i := slices.IndexFunc(known, func(k *kind) bool { return k.owner == owner }); i >= 0 {
		return known[i]
	}
	return unknown
}

package openai

import (
	"slices"

	"github.com/whence-dev/whence/llm-worker/sample"
)

// A kind describes a make of server. These servers ignore fields that they do not know, so a field
// that would be ignored must be refused instead.
type kind struct {
	name     string
	owner    string   // the owner of its models in /v1/models
	fields   []string // the fields of whence.llm.v1.Sampling that it honours, beside everyKind
	tokenIDs bool     // it may answer return_token_ids
	adapters adapterField
	// refuses says that the server refuses the name of an adapter that it has not loaded. Others may
	// let the base model answer, so the server must list the adapter first.
	refuses bool
}

// An adapterField is the field of a body in which a server takes the name of a LoRA adapter.
type adapterField uint8

const (
	noAdapters adapterField = iota // the server has no names for adapters
	asModel                        // in model, instead of the base model
	asLoRAPath                     // in lora_path
)

// everyKind are the fields of OpenAI's API that all servers honour.
var everyKind = []string{"temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "max_tokens"}

var (
	vllm = &kind{"vllm", "vllm", slices.Concat(sglang.fields, []string{"logprobs"}), true, asModel, true}
	// SGLang honours seed only if it is started with --enable-deterministic-inference, and has no
	// ids in logprobs.
	sglang   = &kind{"sglang", "sglang", []string{"top_k", "min_p", "repetition_penalty", "logit_bias", "min_tokens", "ignore_eos", "stop_token_ids", "guide"}, true, asLoRAPath, false}
	llamacpp = &kind{"llama.cpp", "llamacpp", []string{"top_k", "min_p", "repetition_penalty", "logit_bias", "ignore_eos", "guide"}, false, noAdapters, false} // its adapters have numbers
	ollama   = &kind{"ollama", "library", nil, false, noAdapters, false}                                                                                       // an adapter is a model of its own there
	// An unknown server gets the fields of OpenAI's API. It may be a proxy for vLLM, so it is asked
	// for token ids.
	unknown = &kind{"unknown", "", []string{"logit_bias"}, true, asModel, false}
)

var kinds = []*kind{vllm, sglang, llamacpp, ollama}

// kindOf returns the kind whose models have this owner.
func kindOf(owner string) *kind {
	for _, k := range kinds {
		if k.owner == owner {
			return k
		}
	}
	return unknown
}

// honours returns the fields that the server honours, in the proto's order.
func (k *kind) honours() []string {
	return slices.DeleteFunc(sample.Fields(), func(field string) bool { return !k.has(field) && !slices.Contains(everyKind, field) })
}

func (k *kind) has(field string) bool { return slices.Contains(k.fields, field) }

// Sampling returns the fields of whence.llm.v1.Sampling that a make of server honours: "vllm",
// "sglang", "llama.cpp", "ollama", or any other name for a server of no known make.
func Sampling(make string) []string {
	for _, k := range kinds {
		if k.name == make {
			return k.honours()
		}
	}
	return unknown.honours()
}

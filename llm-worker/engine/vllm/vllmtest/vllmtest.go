// Package vllmtest is a fake vLLM: its gRPC service, by the published field numbers. A script
// provides the answers.
package vllmtest

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
)

// Dialect is the dialect of vLLM.
func Dialect() besidetest.Dialect {
	return besidetest.Dialect{
		Service: "vllm.grpc.engine.VllmEngine",
		Read:    read,
		Chunk: func(r besidetest.Request, ids []uint32, sent int) besidetest.Message {
			chunk := besidetest.Message(nil).AddUints(1, ids...).AddUint(2, uint64(len(r.Prompt))).
				AddUint(3, uint64(len(ids))). // of this chunk
				AddUint(4, 2)
			if r.Logprobs >= 0 {
				chunk = chunk.AddLogprobs(5, ids, func(id uint32) (besidetest.Candidate, []besidetest.Candidate) { return tops(id, r.Logprobs) })
			}
			if r.Scored && sent == len(ids) { // the first chunk
				chunk = chunk.AddText(6, string(scores(r)))
			}
			return besidetest.Message(nil).AddText(1, string(chunk))
		},
		Complete: func(r besidetest.Request, finish string, last []uint32, _ int) besidetest.Message {
			complete := besidetest.Message(nil).AddUints(1, last...).AddText(2, finish).AddUint(3, uint64(len(r.Prompt))).
				AddUint(4, uint64(len(last))). // of the last chunk
				AddUint(5, 2).
				AddText(12, `{"a":"field that is not known here"}`)
			if len(last) > 0 && finish == "stop" {
				complete = complete.AddUint(10, uint64(last[len(last)-1]))
			}
			return besidetest.Message(nil).AddText(2, string(complete))
		},
		Aborts: func(m besidetest.Message) (ids []string) {
			for _, id := range m.Messages(1) {
				ids = append(ids, string(id))
			}
			return ids
		},
		Healthy: func(healthy bool) besidetest.Message {
			if healthy {
				return besidetest.Message(nil).AddUint(1, 1).AddText(2, "Health")
			}
			return besidetest.Message(nil).AddText(2, "Engine is not alive")
		},
		Info: func(context, vocab int, eos uint32, generates bool) besidetest.Message {
			m := besidetest.Message(nil).AddText(1, "org/tiny-path").AddUint(3, uint64(context)).AddUint(4, uint64(vocab)).
				AddText(6, "org/tiny").AddText(8, "llama").AddText(9, "LlamaForCausalLM").AddUints(10, eos).AddUint(12, 1).AddUint(13, uint64(context)).AddText(14, "{}")
			if generates {
				m = m.AddUint(2, 1)
			}
			return m
		},
		Loads:         true,
		More:          map[string]func(*besidetest.Server) besidetest.Message{"GetLoads": besidetest.Loads, "GetServerInfo": serverInfo},
		Embed:         embed,
		AbortedFinish: "abort",
	}
}

// embed answers Embed with a vector of two numbers: the prompt's length and its first token.
func embed(m besidetest.Message) (id string, answer besidetest.Message) {
	prompt := m.Message(2).Uints(2)
	return m.Text(1), besidetest.Message(nil).AddFloats(1, float32(len(prompt)), float32(prompt[0])).AddUint(2, uint64(len(prompt))).AddUint(3, 2)
}

// serverInfo is the answer to GetServerInfo. A server that ignores guides has a reasoning parser.
func serverInfo(s *besidetest.Server) besidetest.Message {
	m := besidetest.Message(nil).AddText(5, "vllm-grpc").AddUint(9, 2)
	if s.Void.Load() {
		return m.AddText(23, "qwen3").AddText(24, "after_reasoning")
	}
	return m.AddText(24, "first_token")
}

// tops returns the first n of vLLM's list for a token: the token itself, and then the likeliest others.
func tops(id uint32, n int) (besidetest.Candidate, []besidetest.Candidate) {
	chosen, top := besidetest.Likeliest(id, n)
	list := []besidetest.Candidate{chosen}
	for _, c := range top {
		if c != chosen {
			list = append(list, c)
		}
	}
	return chosen, list[:n]
}

// scores are the log-probabilities of a prompt. The first token has none.
func scores(r besidetest.Request) (m besidetest.Message) {
	m = m.AddUints(2, r.Prompt...)
	for i, id := range r.Prompt {
		chosen, top := tops(id, r.Logprobs)
		var one, list besidetest.Message
		if i > 0 {
			one = one.AddFloat(1, chosen.Logprob)
			for _, c := range top {
				list = list.AddFloats(1, c.Logprob).AddUints(2, c.ID)
			}
		}
		if m = m.AddText(1, string(one)); r.Logprobs > 0 {
			m = m.AddText(3, string(list))
		}
	}
	return m
}

func read(m besidetest.Message) besidetest.Request {
	r := besidetest.Request{Rank: -1, ID: m.Text(1), Prompt: m.Message(2).Uints(2), Stream: m.Uint(5) == 1, Sampling: map[string]any{}}
	if m.Has(3) { // a text, which the server tokenizes
		r.Prompt = besidetest.Tiny().Encode(m.Text(3), true)
	}
	if m.Has(9) {
		r.Rank = int(m.Uint(9)) //nolint:gosec // a test's
	}
	p := m.Message(4)
	if r.Logprobs = -1; p.Has(22) {
		r.Logprobs = int(p.Uint(22)) //nolint:gosec // a test's
	}
	r.Scored = p.Has(23) && p.Uint(23) == p.Uint(22)
	for name, number := range map[string]protowire.Number{"json_schema": 16, "regex": 17, "grammar": 18, "structural_tag": 19} {
		if p.Has(number) {
			r.Sampling[name] = p.Text(number)
		}
	}
	if p.Has(21) {
		var choices []string
		for _, c := range p.Message(21).Messages(1) {
			choices = append(choices, string(c))
		}
		r.Sampling["choice"] = choices
	}
	floats := map[string]int32{
		"temperature": 1, "top_p": 2, "min_p": 4, "frequency_penalty": 5, "presence_penalty": 6, "repetition_penalty": 7,
	}
	uints := map[string]int32{"top_k": 3, "max_tokens": 8, "min_tokens": 9, "seed": 24}
	besidetest.Numbers(p, r.Sampling, floats, uints)
	if ids := p.Uints(11); len(ids) > 0 {
		r.Sampling["stop_token_ids"] = ids
	}
	if p.Uint(14) == 1 {
		r.Sampling["ignore_eos"] = true
	}
	if biases := p.Messages(26); len(biases) > 0 {
		all := map[uint64]float32{}
		for _, b := range biases {
			all[b.Uint(1)] = b.Float(2)
		}
		r.Sampling["logit_bias"] = all
	}
	return r
}

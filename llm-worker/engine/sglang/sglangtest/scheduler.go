// Package sglangtest is a fake SGLang: its gRPC service, by the published field numbers, and its
// HTTP API. A script provides the answers.
package sglangtest

import (
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
)

// Scheduler is the dialect of the gRPC service.
func Scheduler() besidetest.Dialect {
	return besidetest.Dialect{
		Service: "sglang.grpc.scheduler.SglangScheduler",
		Read:    read,
		Chunk: func(r besidetest.Request, ids []uint32, sent int) besidetest.Message {
			chunk := besidetest.Message(nil).AddUints(1, ids...).AddUint(2, uint64(len(r.Prompt))).
				AddUint(3, uint64(sent)). //nolint:gosec // of the answer so far
				AddUint(4, 2)
			if r.Logprobs >= 0 {
				chunk = chunk.AddLogprobs(5, ids, func(id uint32) (besidetest.Candidate, []besidetest.Candidate) {
					return besidetest.Likeliest(id, r.Logprobs)
				})
			}
			return besidetest.Message(nil).AddText(1, r.ID).AddText(2, string(chunk))
		},
		Complete: func(r besidetest.Request, finish string, last []uint32, sent int) besidetest.Message {
			complete := besidetest.Message(nil).AddUints(1, last...).AddText(2, finish).AddUint(3, uint64(len(r.Prompt))).
				AddUint(4, uint64(sent)). //nolint:gosec // of the whole answer
				AddUint(5, 2).AddUint(12, 1)
			if len(last) > 0 && finish == "stop" {
				complete = complete.AddUint(8, uint64(last[len(last)-1]))
			}
			return besidetest.Message(nil).AddText(1, r.ID).AddText(3, string(complete))
		},
		Aborts:  func(m besidetest.Message) []string { return []string{m.Text(1)} },
		Aborted: besidetest.Message(nil).AddUint(1, 1).AddText(2, "Request aborted"),
		Healthy: func(healthy bool) besidetest.Message {
			if healthy {
				return besidetest.Message(nil).AddUint(1, 1).AddText(2, "Health check passed")
			}
			return besidetest.Message(nil).AddText(2, "Health check timeout after 20s")
		},
		Info: func(context, vocab int, eos uint32, generates bool) besidetest.Message {
			m := besidetest.Message(nil).AddText(1, "org/tiny-path").AddText(6, "org/tiny").AddUint(7, uint64(context)).AddUint(8, uint64(vocab)). //nolint:gosec // a test's
																				AddText(10, "llama").AddUints(11, eos).AddUint(13, 1).AddText(20, "{}")
			if generates {
				m = m.AddUint(3, 1)
			}
			return m
		},
		Loads: true,
		More: map[string]func(*besidetest.Server) besidetest.Message{
			"GetLoads": besidetest.Loads,
			"ListLoadedLoRAAdapters": func(*besidetest.Server) besidetest.Message {
				legal := besidetest.Message(nil).AddText(1, adapterID).AddText(2, "legal").AddText(3, "/adapters/legal").AddUint(4, 1)
				return besidetest.Message(nil).AddText(1, string(legal))
			},
		},
		AbortedStatus: status.Error(codes.Internal, "Request aborted"),
	}
}

// adapterID is the server's id of the adapter "legal".
const adapterID = "4f2a9c"

func read(m besidetest.Message) besidetest.Request {
	r := besidetest.Request{ID: m.Text(1), Prompt: m.Message(2).Uints(2), Stream: m.Uint(17) == 1, Sampling: map[string]any{}}
	if r.Logprobs = -1; m.Uint(5) == 1 {
		r.Logprobs = int(m.Uint(7)) //nolint:gosec // a test's
		if int64(m.Uint(6)) != -1 { //nolint:gosec // a test's
			r.Sampling["logprob_start_len"] = m.Uint(6) // the request wants the prompt's, too
		}
	}
	if r.Adapter = m.Text(15); r.Adapter == adapterID {
		r.Adapter = "legal"
	}
	p := m.Message(4)
	for name, number := range map[string]protowire.Number{"regex": 13, "json_schema": 14, "ebnf_grammar": 15, "structural_tag": 16} {
		if p.Has(number) {
			r.Sampling[name] = p.Text(number)
		}
	}
	besidetest.Numbers(p, r.Sampling, map[string]int32{
		"temperature": 1, "top_p": 2, "min_p": 4, "frequency_penalty": 5, "presence_penalty": 6, "repetition_penalty": 7,
	}, map[string]int32{"top_k": 3, "max_tokens": 8, "min_tokens": 18, "n": 17})
	if ids := p.Uints(10); len(ids) > 0 {
		r.Sampling["stop_token_ids"] = ids
	}
	if p.Uint(19) == 1 {
		r.Sampling["ignore_eos"] = true
	}
	if biases := p.Messages(22); len(biases) > 0 {
		all := map[uint64]float32{}
		for _, b := range biases {
			id, err := strconv.ParseUint(b.Text(1), 10, 32)
			if err == nil {
				all[id] = b.Float(2)
			}
		}
		r.Sampling["logit_bias"] = all
	}
	return r
}

package client_test

import (
	"encoding/json"
	"testing"

	"github.com/whence-dev/whence/client"
)

const choices = "id: e.2\nevent: delta\ndata: {\"choices\":[{\"index\":1,\"text\":\"b\",\"finish\":\"length\"},{\"index\":0,\"text\":\"é\",\"logprobs\":[{\"token\":\"é\",\"logprob\":-0.5,\"bytes\":[195,169],\"top_logprobs\":[{\"token\":\"x\",\"logprob\":-1,\"bytes\":null}]}]}]}\n\n"

func TestChoicesAreSeparated(t *testing.T) {
	s := serve(t, answer(201, made), sendEvents(retry+choices+"id: e.3\nevent: ending\ndata: {\"reason\":\"completed\",\"path\":[\"api-service\"]}\n\n"))
	stream, err := s.client(t, client.Options{}).Stream(t.Context(), client.Request{Model: "m", Extra: map[string]any{"prompt": []string{"p", "q"}}})
	if err != nil {
		t.Fatal(err)
	}
	var deltas []client.Event
	for e, err := range stream.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == client.Delta {
			deltas = append(deltas, e)
		}
	}
	if len(deltas) != 1 || deltas[0].Text != "é" || len(deltas[0].Choices) != 2 || stream.Ending().Finish != "" {
		t.Fatal(deltas, stream.Ending())
	}
	first, second := deltas[0].Choices[1], deltas[0].Choices[0]
	if second.Index != 1 || second.Text != "b" || second.Finish != "length" || first.Logprobs[0].Logprob != -0.5 || len(first.Logprobs[0].Bytes) != 2 || first.Logprobs[0].Top[0].Token != "x" {
		t.Error(first, second)
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(s.requests()[0].body), &body); err != nil || body["prompt"] == nil {
		t.Error(body, err)
	}
	if _, there := body["messages"]; there {
		t.Error("the request has messages beside the prompt")
	}
}

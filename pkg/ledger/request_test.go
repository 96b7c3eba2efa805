package ledger_test

import (
	"context"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// An exporter keeps the attributes of the last span.
type exporter map[string]string

func (e exporter) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	for _, s := range spans {
		clear(e)
		for _, a := range s.Attributes() {
			e[string(a.Key)] = a.Value.String()
		}
	}
	return nil
}

func (exporter) Shutdown(context.Context) error { return nil }

// TestSpanHasTheFinishReasonsOfAllChoices: of a chat with several choices, and of a worker's stream.
func TestSpanHasTheFinishReasonsOfAllChoices(t *testing.T) {
	started := &llmv1.Started{Model: "m"}
	end := func(finish llmv1.Finish) *llmv1.End { return &llmv1.End{Finish: finish} }
	choice := func(i uint32, finish llmv1.Finish) any {
		return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_ChoiceEnd{ChoiceEnd: &chatv1.ChoiceEnd{Choice: i, Finish: finish}}}
	}
	begun := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: started}}
	ended := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: end(llmv1.Finish_FINISH_UNSPECIFIED)}}
	for want, test := range map[string]struct {
		request any
		says    []any
	}{
		`["length","tool_calls"]`: {&chatv1.ChatRequest{Model: "x", N: 2}, []any{begun, choice(1, llmv1.Finish_FINISH_TOOL_CALLS), choice(0, llmv1.Finish_FINISH_LENGTH), ended}},
		`["stop","error"]`:        {&chatv1.ChatRequest{Model: "x", Prompts: make([]*chatv1.Prompt, 2)}, []any{begun, choice(0, llmv1.Finish_FINISH_STOP)}},
		`["content_filter"]`: {&workerv1.TokenRequest{Model: "x"}, []any{
			&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: started}},
			&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: end(llmv1.Finish_FINISH_CONTENT_FILTER)}},
		}},
		"": {&chatv1.EmbeddingsRequest{Model: "x"}, []any{&chatv1.EmbeddingsResponse{Model: "m", End: end(llmv1.Finish_FINISH_UNSPECIFIED)}}},
	} {
		got, traces := exporter{}, &streamtrace.Tracer{Ratio: 1}
		shut := traces.Export("whence", got)
		l := &ledger.Ledger{Traces: traces}
		r := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "chat"})
		r.Note(observer.Event{Kind: observer.Running, Message: test.request})
		for _, message := range test.says {
			r.Note(observer.Event{Kind: observer.Announced, Message: message})
		}
		r.Note(observer.Event{Kind: observer.Ended, Reason: streamerr.Completed, Path: streamerr.NewPath("engine")})
		r.Close()
		if err := shut(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got["gen_ai.response.finish_reasons"] != want || got["gen_ai.request.model"] != "x" || got["gen_ai.response.model"] != "m" {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

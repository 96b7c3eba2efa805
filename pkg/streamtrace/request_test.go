package streamtrace_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// attributesOf returns the attributes of the span of a stream of model m, which may be "" for a stream
// that was not admitted.
func attributesOf(t *testing.T, tracer *streamtrace.Tracer, model string, reason streamerr.Reason, run func(*streamtrace.Trace)) map[string]string {
	t.Helper()
	spans := exported(t, tracer, func() {
		tr, count := begin(tracer)
		run(tr)
		time.Sleep(time.Second)
		count.Sent(1, nil)
		tracer.Ended(tr, reason, func() *streamv1.Record { return &streamv1.Record{Model: model, Reason: reason.Proto()} })
	})
	if len(spans) != 1 {
		t.Fatal(spans)
	}
	all := map[string]string{}
	for _, a := range spans[0].Attributes {
		if strings.HasPrefix(string(a.Key), "gen_ai.re") || strings.HasPrefix(string(a.Key), "gen_ai.conversation") {
			all[string(a.Key)] = a.Value.String()
		}
	}
	return all
}

func TestSpanHasTheRequestAndItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := attributesOf(t, &streamtrace.Tracer{Ratio: 1}, "m", streamerr.Completed, func(tr *streamtrace.Trace) {
			tr.Asks(streamtrace.Request{Model: "m:latest", Choices: 2})
			tr.Serves(streamtrace.Client{Stream: true, Answer: "chatcmpl-a", Conversation: "c", Earlier: "resp_b"})
			tr.Finished(1, "length")
			tr.Finished(0, "stop")
			tr.Finished(2, "stop") // no such choice
		})
		for key, want := range map[string]string{
			"gen_ai.request.model": "m:latest", "gen_ai.request.stream": "true", "gen_ai.request.choice.count": "2", "gen_ai.request.previous_response.id": "resp_b",
			"gen_ai.response.model": "m", "gen_ai.response.id": "chatcmpl-a", "gen_ai.response.finish_reasons": `["stop","length"]`,
			"gen_ai.response.time_to_first_chunk": "1", "gen_ai.conversation.id": "c",
		} {
			if got[key] != want {
				t.Errorf("%s is %q, want %q", key, got[key], want)
			}
		}
		if len(got) != 9 {
			t.Error(got)
		}
	})
}

// TestChoicesThatDidNotCompleteFinishWithAnError: as the conventions say. A stream that was not
// admitted has no choices, and an answer in one body no first chunk.
func TestChoicesThatDidNotCompleteFinishWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct{ model, want string }{{"m", `["error","stop"]`}, {"", ""}} {
			got := attributesOf(t, &streamtrace.Tracer{}, test.model, streamerr.PeerLost, func(tr *streamtrace.Trace) {
				tr.Asks(streamtrace.Request{Model: strings.Repeat("é", 1000), Choices: 2})
				tr.Finished(1, "stop")
			})
			if got["gen_ai.response.finish_reasons"] != test.want {
				t.Errorf("%v", got)
			}
			if first, ok := got["gen_ai.response.time_to_first_chunk"]; ok {
				t.Errorf("the first chunk of an answer in one body came after %s", first)
			}
			if model := got["gen_ai.request.model"]; model != strings.Repeat("é", 128) {
				t.Errorf("the requested model has %d bytes", len(model))
			}
		}
	})
}

package sim_test

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/sim"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// handOver prefills a prompt for another worker.
func (e engine) handOver(t *testing.T, ids []uint32) (parameters []byte, end *llmv1.End, took time.Duration) {
	t.Helper()
	req := ask(ids, 1)
	req.KvTransfer = &workerv1.KVTransfer{What: &workerv1.KVTransfer_Ask{Ask: true}}
	begun := time.Now()
	for out, err := range e.Generate(t.Context(), req) {
		if err != nil || out.GetTokens() != nil {
			t.Fatal(out, err)
		}
		if h := out.GetHandover(); h != nil {
			parameters = h.GetParameters()
		}
		end = out.GetEnd()
	}
	return parameters, end, time.Since(begun)
}

// given returns a request whose prompt was handed over.
func given(ids []uint32, tokens int, parameters []byte) *workerv1.TokenRequest {
	req := ask(ids, tokens)
	req.KvTransfer = &workerv1.KVTransfer{What: &workerv1.KVTransfer_Parameters{Parameters: parameters}}
	return req
}

func TestHandedOverPromptIsFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alone, reads, answers := run(t, sim.Options{}), run(t, sim.Options{}), run(t, sim.Options{})
		want, _, cold, err := alone.read(t.Context(), ask(prompt(1, 960), 20))
		if err != nil {
			t.Fatal(err)
		}
		parameters, end, took := reads.handOver(t, prompt(1, 960))
		if u := end.GetUsage(); len(parameters) == 0 || took != cold || u.GetPromptTokens() != 960 || u.GetCompletionTokens() != 0 || end.GetFinish() != llmv1.Finish_FINISH_LENGTH {
			t.Errorf("%q after %v, and to read it takes %v: %v", parameters, took, cold, end)
		}
		got, end, first, err := answers.read(t.Context(), given(prompt(1, 960), 20, parameters))
		if err != nil || !slices.Equal(got, want) || end.GetUsage().GetCachedTokens() != 959 {
			t.Errorf("%v and %v, want %v: %v", got, end, want, err)
		}
		if expect := sim.DefaultTransfer + 959*sim.DefaultPerToken + sim.DefaultPrefillToken + sim.DefaultStep; first != expect {
			t.Errorf("the first token took %v, want %v", first, expect)
		}
		if n := answers.model.Prefill(); n != 0 {
			t.Errorf("%d tokens are still to be read", n)
		}
		// The cache holds fetched positions as well as read positions.
		if _, end, _, err = answers.read(t.Context(), ask(prompt(1, 960), 1)); err != nil || end.GetUsage().GetCachedTokens() != 944 {
			t.Error(end, err)
		}
	})
}

func TestInvalidHandoverIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := prompt(1, 960)
		want, _, cold, err := run(t, sim.Options{}).read(t.Context(), ask(ids, 20))
		if err != nil {
			t.Fatal(err)
		}
		reads := run(t, sim.Options{})
		fresh := func() []byte {
			parameters, _, _ := reads.handOver(t, ids)
			return parameters
		}
		old := fresh()
		time.Sleep(2 * time.Minute)
		used, other := fresh(), fresh()
		other = bytes.Replace(other, []byte(`"tokens":960`), []byte(`"tokens":961`), 1)
		for name, parameters := range map[string][]byte{
			"used": used, "of another prompt": other, "out of date": old, "of another engine": []byte(`{"do_remote_prefill":true,"remote_engine_id":"vllm"}`), "no JSON": []byte("x"),
		} {
			answers := run(t, sim.Options{KVTokens: 1024})
			if name == "used" {
				if _, _, _, err := answers.read(t.Context(), given(ids, 1, parameters)); err != nil {
					t.Fatal(err)
				}
				// there is no room left for the fetched prompt
				if _, _, _, err := answers.read(t.Context(), ask(prompt(2, 1010), 1)); err != nil {
					t.Fatal(err)
				}
			}
			got, end, first, err := answers.read(t.Context(), given(ids, 20, parameters))
			if err != nil || !slices.Equal(got, want) || first != cold || end.GetUsage().GetCachedTokens() != 0 {
				t.Errorf("%s: %v after %v, want %v after %v: %v, %v", name, got, first, want, cold, end, err)
			}
		}
	})
}

func TestStopEndsAPrefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := run(t, sim.Options{})
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		defer ctl.Release()
		req := ask(prompt(1, 960), 1)
		req.KvTransfer = &workerv1.KVTransfer{What: &workerv1.KVTransfer_Ask{Ask: true}}
		cause := streamerr.New(streamerr.UserStop, "enough")
		timer := time.AfterFunc(sim.DefaultStep, func() { ctl.Stop(cause) })
		defer timer.Stop()
		var last error
		for out, err := range e.Generate(context.WithoutCancel(ctx), req) {
			if out.GetHandover() != nil {
				t.Error("it was handed over all the same")
			}
			last = err
		}
		if streamerr.As(last).Reason != streamerr.UserStop || e.Load().GetRunning() != 0 {
			t.Errorf("%v, with %v", last, e.Load())
		}
	})
}

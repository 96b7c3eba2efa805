package e2e

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
)

// wrongs are the ways in which a worker breaks the contract of its messages.
var wrongs = map[string]func(out *workerv1.GenerateResponse) []*workerv1.GenerateResponse{
	"ids beyond the vocabulary": tokensWith(func(m *workerv1.Tokens) { m.Ids = []uint32{1 << 31} }),
	"no ids":                    tokensWith(func(m *workerv1.Tokens) { m.Ids = nil }),
	"more logprobs than ids":    tokensWith(func(m *workerv1.Tokens) { m.Logprobs = []float32{-1, -2, -3} }),
	"logprobs that are no numbers": tokensWith(func(m *workerv1.Tokens) {
		m.Logprobs, m.TopIds, m.TopLogprobs = []float32{float32(math.NaN())}, []uint32{1, 2}, []float32{float32(math.Inf(1)), 7}
	}),
	"alternatives without their logprobs": tokensWith(func(m *workerv1.Tokens) { m.TopIds, m.TopLogprobs = []uint32{1, 2, 3}, nil }),
	"alternatives beyond the vocabulary": tokensWith(func(m *workerv1.Tokens) {
		m.Logprobs, m.TopIds, m.TopLogprobs = make([]float32, len(m.Ids)), slices.Repeat([]uint32{1 << 31}, 2*len(m.Ids)), make([]float32, 2*len(m.Ids))
	}),
	"more cached tokens than there are": tokensWith(func(m *workerv1.Tokens) { m.CachedTokens = new(uint32(math.MaxUint32)) }),
	"a message beyond its bound":        tokensWith(func(m *workerv1.Tokens) { m.Ids = slices.Repeat([]uint32{1 << 31}, 2<<20) }),
	"two starts": func(out *workerv1.GenerateResponse) []*workerv1.GenerateResponse {
		if out.GetStarted() != nil {
			return []*workerv1.GenerateResponse{out, out}
		}
		return []*workerv1.GenerateResponse{out}
	},
	"no start": func(out *workerv1.GenerateResponse) []*workerv1.GenerateResponse {
		if out.GetStarted() != nil {
			return nil
		}
		return []*workerv1.GenerateResponse{out}
	},
	"a prompt of four billion tokens": func(out *workerv1.GenerateResponse) []*workerv1.GenerateResponse {
		if m := out.GetStarted(); m != nil {
			m.PromptTokens = math.MaxUint32
		}
		return []*workerv1.GenerateResponse{out}
	},
	"empty messages": func(out *workerv1.GenerateResponse) []*workerv1.GenerateResponse {
		return []*workerv1.GenerateResponse{{}, out, {}}
	},
	"half of a message": func(out *workerv1.GenerateResponse) []*workerv1.GenerateResponse {
		if out.GetTokens() != nil {
			return []*workerv1.GenerateResponse{{Message: &workerv1.GenerateResponse_Tokens{}}}
		}
		return []*workerv1.GenerateResponse{out}
	},
	"an end that is empty": endWith(func(m *llmv1.End) { m.Reset() }),
	"no usage":             endWith(func(m *llmv1.End) { m.Usage = nil }),
	"usage of four billion tokens": endWith(func(m *llmv1.End) {
		m.Usage = &llmv1.Usage{PromptTokens: math.MaxUint32, CompletionTokens: math.MaxUint32, CachedTokens: new(uint32(math.MaxUint32))}
	}),
	"a path of 100,000 hops": endWith(func(m *llmv1.End) { m.Path = slices.Repeat([]string{"hop"}, 100_000) }),
	"a path with lines":      endWith(func(m *llmv1.End) { m.Path = []string{"a\r\nb: c", strings.Repeat("z", 1<<16)} }),
	"tokens after the end": func(out *workerv1.GenerateResponse) []*workerv1.GenerateResponse {
		if out.GetEnd() == nil {
			return []*workerv1.GenerateResponse{out}
		}
		return []*workerv1.GenerateResponse{out, {Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{1}}}}}
	},
	"no end": func(out *workerv1.GenerateResponse) []*workerv1.GenerateResponse {
		if out.GetEnd() != nil {
			return nil
		}
		return []*workerv1.GenerateResponse{out}
	},
}

func tokensWith(change func(m *workerv1.Tokens)) func(out *workerv1.GenerateResponse) []*workerv1.GenerateResponse {
	return func(out *workerv1.GenerateResponse) []*workerv1.GenerateResponse {
		if m := out.GetTokens(); m != nil {
			change(m)
		}
		return []*workerv1.GenerateResponse{out}
	}
}

func endWith(change func(m *llmv1.End)) func(out *workerv1.GenerateResponse) []*workerv1.GenerateResponse {
	return func(out *workerv1.GenerateResponse) []*workerv1.GenerateResponse {
		if m := out.GetEnd(); m != nil {
			change(m)
		}
		return []*workerv1.GenerateResponse{out}
	}
}

// TestWorkerThatBreaksItsContract: whatever a worker sends, the client gets one ending, and the
// services serve the next request.
func TestWorkerThatBreaksItsContract(t *testing.T) {
	t.Parallel()
	var wrong atomic.Pointer[func(*workerv1.GenerateResponse) []*workerv1.GenerateResponse]
	relay := &relayWorker{info: func(*llmv1.WorkerInfo) {}}
	relay.alter = func(out *workerv1.GenerateResponse) ([]*workerv1.GenerateResponse, error) {
		if alter := wrong.Load(); alter != nil {
			return (*alter)(out), nil
		}
		return []*workerv1.GenerateResponse{out}, nil
	}
	w := relay.behind(t, run(t, separate, flags{}))
	for name, alter := range wrongs {
		t.Run(name, func(t *testing.T) {
			wrong.Store(&alter)
			resp, err := w.send(t, greedy(short, "stream", true, "logprobs", true, "top_logprobs", 2), "")
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode == http.StatusOK {
				e := newLive(resp).rest(t)
				t.Logf("text of %d bytes, finish_reason %q, error %+v", e.text.Len(), e.finish, e.err)
				if e.done == (e.err != nil) {
					t.Errorf("[DONE] %t, error %+v", e.done, e.err)
				}
			} else {
				r := readAll(t, resp)
				t.Logf("status %d: %s", r.status, r.body)
				shapeOf(t, "ErrorResponse").want(t, name, r.body)
			}
			r := w.post(t, greedy(short))
			t.Logf("not streamed: status %d: %.200s", r.status, r.body)
			if r.status != http.StatusOK {
				shapeOf(t, "ErrorResponse").want(t, name, r.body)
			}
			wrong.Store(nil)
			polltest.Eventually(t, "the worker is used again", func() bool { return w.post(t, greedy(short)).status == http.StatusOK })
		})
	}
	for _, p := range w.processes {
		lines := p.Log.All()
		for _, line := range lines {
			if strings.Contains(line, "panic") {
				t.Errorf("%s: %.400s", p.Name, line)
			}
		}
	}
}

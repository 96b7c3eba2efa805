package e2e

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/whence-dev/whence/internal/seeingtest"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/sglang/sglangtest"
)

// twoWorkers starts the whole path with two workers, each with its own server.
func twoWorkers(t *testing.T, engine string, urls [2]string) (w *whence, workers [2]*process) {
	t.Helper()
	of := []string{"--model", seeingDir(t), "--model-name", model}
	own := map[string][]string{}
	for i, url := range urls {
		own[workerName(i)] = []string{"--engine", engine, "--upstream", url}
	}
	w = assemble(t, lab.Layout{Workers: 2, Chats: 1, Edges: 1, Worker: of, Chat: of, Own: own})
	return w, [2]*process{w.processes[workerName(0)], w.processes[workerName(1)]}
}

// TestStreamWithImagesMovesToAnotherSGLangWithThem kills the stream's worker in mid-answer.
func TestStreamWithImagesMovesToAnotherSGLangWithThem(t *testing.T) {
	t.Parallel()
	var begun atomic.Bool
	script := func(a *besidetest.Answer) error {
		if begun.Swap(true) {
			return spelling(a)
		}
		for range 5 {
			a.Pace(300)
		}
		a.Wait()
		return a.Aborted()
	}
	var servers [2]*besidetest.Server
	var urls [2]string
	for i := range servers {
		servers[i] = besidetest.Start(t, sglangtest.Seeing(seeingtest.Placeholder), script, "")
		urls[i] = "http://" + servers[i].Addr
	}
	w, workers := twoWorkers(t, "sglang", urls)
	body := shownIn(seeingtest.DataURL)["/v1/chat/completions"].body
	body["max_tokens"] = 9
	body["stream_options"] = object{"include_usage": true}
	l := w.open(t, body).begun(t)
	at := slices.IndexFunc(servers[:], func(s *besidetest.Server) bool { return len(s.Asked()) == 1 })
	if at < 0 {
		t.Fatal("no server got exactly one call")
	}
	workers[at].kill(t)
	l.completed(t)
	asked := servers[1-at].Asked()
	if len(asked) != 1 || !slices.Equal(asked[0].Images, []string{seeingtest.DataURL}) || asked[0].Prompt[len(asked[0].Prompt)-1] != 300 || l.usage.Completion != 9 {
		t.Errorf("the other SGLang got %+v; usage %+v", asked, l.usage)
	}
	silent(t, w)
}

// TestStreamWithImagesEndsWithItsVLLM: another vLLM would render the answer so far into another
// prompt.
func TestStreamWithImagesEndsWithItsVLLM(t *testing.T) {
	t.Parallel()
	var servers [2]*chattingVLLM
	var urls [2]string
	for i := range servers {
		servers[i] = newChattingVLLM(t, "vllm", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		urls[i] = servers[i].URL
	}
	w, workers := twoWorkers(t, "openai", urls)
	l := w.open(t, shownIn(seeingtest.DataURL)["/v1/chat/completions"].body).begun(t)
	at := slices.IndexFunc(servers[:], func(s *chattingVLLM) bool { return len(s.asked()) == 1 })
	if at < 0 {
		t.Fatal("no server got exactly one call")
	}
	workers[at].kill(t)
	e := l.failed(t)
	if e.reason() != "peer_lost" || len(servers[1-at].asked()) != 0 {
		t.Errorf("%+v; the other vLLM got %v", e, servers[1-at].asked())
	}
	silent(t, w)
}

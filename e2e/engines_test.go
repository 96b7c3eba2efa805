package e2e

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/sglang/sglangtest"
	"github.com/whence-dev/whence/llm-worker/engine/vllm/vllmtest"
)

// spelling answers with tokens that the small model can decode, one per millisecond, up to the
// requested number.
func spelling(a *besidetest.Answer) error {
	for range a.Max() {
		if !a.Pace(300) {
			return a.Aborted()
		}
	}
	a.Complete("length")
	return nil
}

// An engineServer is a server that a worker's engine calls over the server's own API.
type engineServer struct {
	dialect besidetest.Dialect
	worker  func(addr string) []string
}

func engineServers(t *testing.T) map[string]engineServer {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, whencetiny.FS()); err != nil {
		t.Fatal(err)
	}
	return map[string]engineServer{
		"vllm":         {vllmtest.Dialect(), func(addr string) []string { return []string{"--engine", "vllm", "--upstream", addr} }},
		"sglang, gRPC": {sglangtest.Scheduler(), func(addr string) []string { return []string{"--engine", "sglang", "--upstream", addr} }},
		"sglang, HTTP": {sglangtest.Generator(false, false), func(addr string) []string {
			return []string{"--engine", "sglang", "--upstream", "http://" + addr, "--model", dir}
		}},
	}
}

func TestClientThatLeavesIsAnAbortAtTheEngine(t *testing.T) {
	t.Parallel()
	for name, s := range engineServers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := besidetest.Start(t, s.dialect, spelling, "")
			w := run(t, separate, flags{worker: append(s.worker(server.Addr), "--model-name", model)})
			if c := w.post(t, greedy(short, "max_tokens", 5)).completion(t); c.Usage == nil || c.Usage.Completion != 5 || len(server.AbortedIDs()) != 0 {
				t.Errorf("%+v, %v", c, server.AbortedIDs())
			}
			l := w.open(t, greedy(long)).begun(t)
			l.close()
			polltest.Eventually(t, "the engine has been told to abort", func() bool {
				ids := server.AbortedIDs()
				return len(ids) == 1 && strings.HasPrefix(ids[0], l.id+"-")
			})
			w.clientGone(t, l.id)
			story := w.why(t, l.id)
			if last := story.Hops[len(story.Hops)-1]; story.Reason != "client_gone" || story.Origin != "client" || last.StopConfirmedMS == nil {
				t.Errorf("%+v", story)
			}
			polltest.Eventually(t, "the engine is idle", func() bool { return server.Live.Load() == 0 })
			w.probedIdle(t)
		})
	}
}

func TestRequestThatNoEngineHonoursIsRefusedByName(t *testing.T) {
	t.Parallel()
	servers := engineServers(t)
	s := servers["sglang, gRPC"]
	server := besidetest.Start(t, s.dialect, spelling, "")
	w := run(t, separate, flags{worker: append(s.worker(server.Addr), "--model-name", model)})
	refused := w.post(t, greedy(short, "max_tokens", 5, "seed", 7))
	e := refused.completion(t).Error
	if refused.status != http.StatusBadRequest || e == nil || e.Param == nil || *e.Param != "seed" || !strings.Contains(e.Message, "sglang") || len(server.Asked()) != 0 {
		t.Errorf("%d %s", refused.status, refused.body)
	}

	// With a vLLM beside SGLang, requests with a seed go to vLLM.
	other := servers["vllm"]
	vllm := besidetest.Start(t, other.dialect, spelling, "")
	second := service(t, llmWorker, "127.0.0.1:0", append(other.worker(vllm.Addr), "--model-name", model, "--name", "llm-worker/1"))
	both := w.worker + "," + second.listening(t)
	chat := service(t, chatService, "127.0.0.1:0", []string{"--worker", both})
	api := service(t, apiService, "127.0.0.1:0", []string{"--chat", chat.listening(t)})
	w.api = api.listening(t)
	w.ready(t)
	polltest.Eventually(t, "a request with a seed is answered", func() bool {
		return w.post(t, greedy(short, "max_tokens", 5, "seed", 7)).status == http.StatusOK // once chat-service knows both workers
	})
	if len(server.Asked()) != 0 || len(vllm.Asked()) != 1 || vllm.Asked()[0].Sampling["seed"] != uint64(7) {
		t.Errorf("SGLang got %v, vLLM %v", server.Asked(), vllm.Asked())
	}
}

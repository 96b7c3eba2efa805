package newcomer

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/loopback"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
)

// answerOfVLLM is what the vLLM of the test answers to everybody.
const answerOfVLLM = "A model server wrote this."

// vllm plays a vLLM that serves the model of a directory under another name.
func vllm(t *testing.T, directory string) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	say := func(path, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	}
	say("/version", `{"version":"0.32.0"}`)
	say("/metrics", "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\"} 0\n")
	say("/v1/models", fmt.Sprintf(`{"object":"list","data":[{"id":"acme/llama-9","object":"model","owned_by":"vllm","root":%q,"parent":null,"max_model_len":1024}]}`, directory))
	mux.HandleFunc("POST /tokenize", besidetest.Tokenize)
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Model     string   `json:"model"`
			Prompt    []uint32 `json:"prompt"`
			MaxTokens int      `json:"max_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Model != "acme/llama-9" || len(asked.Prompt) == 0 {
			http.Error(w, `{"error":{"message":"it takes token ids for acme/llama-9","type":"BadRequestError","code":400}}`, http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		ids, finish := besidetest.Tiny().Encode(answerOfVLLM, false), "stop"
		if asked.MaxTokens < len(ids) {
			ids, finish = ids[:asked.MaxTokens], "length"
		}
		for _, id := range ids {
			_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"token_ids\":[%d],\"finish_reason\":null}]}\n\n", id)
		}
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"token_ids\":[],\"finish_reason\":%q}]}\n\n", finish)
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", len(asked.Prompt), len(ids))
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":%q},\"finish_reason\":null}]}\n\n", answerOfVLLM)
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}`+"\n\n")
		_, _ = io.WriteString(w, `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":6}}`+"\n\ndata: [DONE]\n\n")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// inFrontOf returns the next command of a page about a model server, which names one or two servers, for the
// servers of the test.
func (r *reading) inFrontOf(has string, servers ...string) string {
	r.t.Helper()
	command := strings.TrimSpace(r.next(has).text)
	for _, server := range servers {
		for _, printed := range []string{"http://127.0.0.1:8000", "http://gpu1:8000", "http://gpu2:8000"} {
			if strings.Contains(command, printed) {
				command = strings.Replace(command, printed, server, 1)
				break
			}
		}
	}
	return "export WHENCE_LISTEN=$FIRST; " + strings.Replace(command, "whence", "go run .", 1)
}

// TestOneCommandInFrontOfAModelServer: a user needs only the address of a server. A second
// address, where nothing listens yet, holds nothing up.
func TestOneCommandInFrontOfAModelServer(t *testing.T) {
	directory, err := filepath.Abs("../../internal/whencetiny/model")
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := loopback.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	u := newUser(t)
	page := &reading{user: u, t: t, rest: blocks(t, "../../docs/howto/vllm.md")}
	first := u.start(page.inFrontOf("whence --upstream http://127.0.0.1:8000", vllm(t, directory).URL) + " --upstream " + nobody)
	u.await(first, "Ctrl-C drains")
	for _, want := range []string{
		`server="vLLM 0.32.0"`, "engine=openai", "model=acme/llama-9", `from="the path that the server names"`, "a context of 1024 tokens",
		"Whence streams acme/llama-9", `upstream=` + nobody + ` problem="the server that generates refuses connections: nothing listens at its address"`,
	} {
		if !strings.Contains(first.output.String(), want) {
			t.Errorf("no %q in\n%s", want, first.output.String())
		}
	}
	ask := block{text: `curl http://$FIRST/v1/chat/completions -H 'Content-Type: application/json' -d '{"model":"acme/llama-9","messages":[{"role":"user","content":"Who wrote this?"}]}'` + "\n"}
	answer := u.run(ask)
	if !strings.Contains(answer, answerOfVLLM) {
		t.Error(answer)
	}
	if workers := u.run(block{text: "curl http://$FIRST/v1/workers\n"}); !strings.Contains(workers, `"name":"llm-worker/0"`) || !strings.Contains(workers, "vLLM 0.32.0") {
		t.Error(workers)
	}
	if missing := u.run(block{text: `curl http://$FIRST/v1/chat/completions -H 'Content-Type: application/json' -d '{"model":"another","messages":[{"role":"user","content":"Hi"}]}'` + "\n"}); !strings.Contains(missing, "nothing listens") || strings.Contains(missing, nobody) {
		t.Error(missing)
	}
	first.interrupt()

	// The same in front of two servers, without ports in between.
	page.next("server recognised")
	second := u.start(page.inFrontOf("whence gateway --upstream http://gpu1:8000", vllm(t, directory).URL, vllm(t, directory).URL))
	u.await(second, "server recognised")
	u.run(block{text: "until curl http://$FIRST/readyz | grep '2 of 2'; do sleep 0.1; done\n"})
	if answer := u.run(ask); !strings.Contains(answer, answerOfVLLM) {
		t.Error(answer)
	}
	second.interrupt()

	// A server whose model's files are unavailable.
	third := u.start("export WHENCE_LISTEN=$FIRST; go run . --upstream " + vllm(t, t.TempDir()).URL)
	u.await(third, "Ctrl-C drains")
	if log := third.output.String(); !strings.Contains(log, "text only") || !strings.Contains(log, "--model names them") {
		t.Error(log)
	}
	if answer := u.run(ask); !strings.Contains(answer, answerOfVLLM) {
		t.Error(answer)
	}
	third.interrupt()
}

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/internal/seeingtest"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/sglang/sglangtest"
)

// image is a part of the base64 of every image of these tests. No log may contain it.
const image = "iVBORw0KGgo"

type object = map[string]any

// shownIn returns a request with an image for each API, and the field of the image.
func shownIn(url string) map[string]struct {
	body  ask
	param string
} {
	text := func(kind string) object { return object{"type": kind, "text": "What is it? "} }
	user := func(parts ...any) []any { return []any{object{"role": "user", "content": parts}} }
	source := object{"type": "url", "url": url}
	at := "messages[0].content[1].source.url"
	if _, data, inline := strings.Cut(url, ","); inline {
		source, at = object{"type": "base64", "media_type": "image/png", "data": data}, "messages[0].content[1].source.data"
	}
	return map[string]struct {
		body  ask
		param string
	}{
		"/v1/chat/completions": {ask{"model": model, "max_tokens": 5, "messages": user(text("text"), object{"type": "image_url", "image_url": object{"url": url, "detail": "high"}})}, "messages[0].content[1].image_url.url"},
		"/v1/responses":        {ask{"model": model, "max_output_tokens": 5, "store": false, "input": user(text("input_text"), object{"type": "input_image", "image_url": url})}, "input[0].content[1].image_url"},
		"/v1/messages":         {ask{"model": model, "max_tokens": 5, "messages": user(text("text"), object{"type": "image", "source": source})}, at},
		"/generate":            {ask{"text": "What is it? " + seeingtest.Text, "image_data": url, "sampling_params": object{"max_new_tokens": 5}}, "image_data"},
	}
}

// conversational returns the APIs with conversations.
func conversational() []string {
	return []string{"/v1/chat/completions", "/v1/messages", "/v1/responses"}
}

// seeingDir returns the directory of a model that sees images.
func seeingDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, seeingtest.FS()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// seeing starts the whole path in front of a server whose model sees images.
func seeing(t *testing.T, engine, url string) *whence {
	t.Helper()
	of := []string{"--model", seeingDir(t), "--model-name", model}
	return run(t, separate, flags{worker: append([]string{"--engine", engine, "--upstream", url}, of...), chat: of, api: []string{"--image-any-port"}})
}

// silent checks that no process has logged a part of an image.
func silent(t *testing.T, w *whence, secrets ...string) {
	t.Helper()
	for name, p := range w.processes {
		for _, secret := range append(secrets, image) {
			if strings.Contains(p.Log.String(), secret) {
				t.Errorf("%s has logged an image or its URL", name)
			}
		}
	}
}

// blamed checks a refusal of a request, in any API's form.
func blamed(t *testing.T, r reply, param, says string) {
	t.Helper()
	if !strings.Contains(string(r.body), says) || r.status != http.StatusBadRequest || !strings.Contains(string(r.body), param) {
		t.Errorf("%d %s, want %s refused: %q", r.status, r.body, param, says)
	}
}

func TestSGLangGetsImagesBesideThePrompt(t *testing.T) {
	t.Parallel()
	server := besidetest.Start(t, sglangtest.Seeing(seeingtest.Placeholder), spelling, "")
	w := seeing(t, "sglang", "http://"+server.Addr)
	for path, r := range shownIn(seeingtest.DataURL) {
		before := len(server.Asked())
		got := w.postTo(t, path, r.body)
		asked := server.Asked()[before:]
		if got.status != http.StatusOK || len(asked) != 1 || !slices.Equal(asked[0].Images, []string{seeingtest.DataURL}) || slices.Index(asked[0].Prompt, seeingtest.Placeholder) < 1 {
			t.Errorf("%s: %d %s; SGLang got %+v", path, got.status, got.body, asked)
		}
	}
	// An image of a megabyte crosses all hops.
	large := seeingtest.DataURL + strings.Repeat("AAAA", 1<<20/4)
	if got, asked := w.postTo(t, "/v1/responses", shownIn(large)["/v1/responses"].body), server.Asked(); got.status != http.StatusOK || asked[len(asked)-1].Images[0] != large {
		t.Errorf("%d %.500s", got.status, got.body)
	}
	models := w.get(t, "/v1/models")
	if !strings.Contains(string(models.body), `"images":true`) {
		t.Errorf("%s", models.body)
	}
	// The edge fetches URLs, but connects to no address of this machine.
	private := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a private address was reached") }))
	defer private.Close()
	before := len(server.Asked())
	for path, r := range shownIn(private.URL + "/a-secret") {
		blamed(t, w.postTo(t, path, r.body), r.param, "address is not public")
	}
	for path, r := range shownIn("data:image/png;base64,QUJD") {
		blamed(t, w.postTo(t, path, r.body), r.param, "not an image")
	}
	if n := len(server.Asked()); n != before {
		t.Errorf("SGLang got %d calls although the images could not be fetched", n-before)
	}
	silent(t, w, "a-secret", private.Listener.Addr().String())
}

// A chattingVLLM is a fake vLLM whose model sees images: it takes and returns token ids, and
// accepts images in chats.
type chattingVLLM struct {
	*httptest.Server

	mu    sync.Mutex // guards the following field
	chats []string   // bodies of the requests
}

func newChattingVLLM(t *testing.T, owner string) *chattingVLLM {
	t.Helper()
	v := &chattingVLLM{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":"org/seeing","object":"model","owned_by":%q}]}`, owner)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		event(w, "x", "length")
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var body json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		v.mu.Lock()
		v.chats = append(v.chats, string(body))
		v.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`+"\n\n")
		for _, reason := range []string{"null", "null", `"length"`} {
			fmt.Fprintf(w, `data: {"choices":[{"index":0,"delta":{"content":"x"},"token_ids":[300],"finish_reason":%s}]}`+"\n\n", reason)
		}
		fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":700,"completion_tokens":3}}`+"\n\ndata: [DONE]\n\n")
	})
	v.Server = httptest.NewServer(mux)
	t.Cleanup(v.Close)
	return v
}

// asked returns the bodies of the chats so far.
func (v *chattingVLLM) asked() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.chats)
}

func TestVLLMGetsImagesInChats(t *testing.T) {
	t.Parallel()
	server := newChattingVLLM(t, "vllm")
	w := seeing(t, "openai", server.URL)
	all := shownIn(seeingtest.DataURL)
	want := `{"role":"user","content":[{"type":"text","text":"What is it? "},{"type":"image_url","image_url":{"url":"` + seeingtest.DataURL + `"}}]}`
	for _, path := range conversational() {
		before := len(server.asked())
		got := w.postTo(t, path, all[path].body)
		var body struct{ Messages []json.RawMessage }
		asked := server.asked()[before:]
		if len(asked) == 1 && json.Unmarshal([]byte(asked[0]), &body) != nil {
			t.Fatal(asked)
		}
		if got.status != http.StatusOK || len(body.Messages) != 1 || !equalJSON(t, string(body.Messages[0]), want) || !strings.Contains(string(got.body), "700") {
			t.Errorf("%s: %d %s; vLLM got %v", path, got.status, got.body, asked)
		}
	}
	before := len(server.asked())
	blamed(t, w.postTo(t, "/generate", all["/generate"].body), "image_data", "the engine (vllm) takes an image only within a conversation")
	if n := len(server.asked()); n != before {
		t.Error("vLLM got a call")
	}
	silent(t, w)
}

// equalJSON reports whether two texts are the same JSON.
func equalJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var one, two any
	if json.Unmarshal([]byte(a), &one) != nil || json.Unmarshal([]byte(b), &two) != nil {
		t.Fatal(a, b)
	}
	first, _ := json.Marshal(one)
	second, _ := json.Marshal(two)
	return string(first) == string(second)
}

// TestEnginesThatTakeNoImagesAreNamed: the refusal names the engine, and no image is fetched.
func TestEnginesThatTakeNoImagesAreNamed(t *testing.T) {
	t.Parallel()
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the image was fetched") }))
	t.Cleanup(private.Close)
	t.Run("llama.cpp", func(t *testing.T) {
		t.Parallel()
		server := newChattingVLLM(t, "llamacpp")
		w := seeing(t, "openai", server.URL)
		for path, r := range shownIn(private.URL) {
			blamed(t, w.postTo(t, path, r.body), strings.SplitN(r.param, "[", 2)[0], "the engine (llama.cpp) takes none")
		}
		if len(server.asked()) != 0 {
			t.Error("llama.cpp got a call")
		}
	})
	t.Run("whence-tiny", func(t *testing.T) {
		t.Parallel()
		w := run(t, separate, flags{})
		all := shownIn(seeingtest.DataURL)
		for _, path := range conversational() {
			blamed(t, w.postTo(t, path, all[path].body), strings.SplitN(all[path].param, "[", 2)[0], "the chat template of the model has no place for images")
		}
		blamed(t, w.postTo(t, "/generate", all["/generate"].body), "image_data", "the engine (embedded) takes none")
		later := all["/v1/chat/completions"].body // the image is in an earlier turn
		later["messages"] = append(later["messages"].([]any), object{"role": "assistant", "content": "A cat."}, object{"role": "user", "content": "Thanks"})
		if got := w.postTo(t, "/v1/chat/completions", later); got.status != http.StatusOK || got.header.Get("whence-ignored") != "messages[].content[].image_url.url" {
			t.Errorf("%d %s, left out %q", got.status, got.body, got.header.Get("whence-ignored"))
		}
		silent(t, w)
	})
}

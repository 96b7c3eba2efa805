package guide

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// TestRealLlamaCPPFollowsGBNF: llama.cpp's own server reads the grammars of the schemas of these tests, and what
// it writes under them are answers of the guides. scripts/llamacpp installs the server.
func TestRealLlamaCPPFollowsGBNF(t *testing.T) {
	python := os.Getenv("WHENCE_LLAMACPP")
	if python == "" {
		t.Skip("scripts/llamacpp plays the grammars against llama.cpp's own server")
	}
	root := filepath.Join("..", "..")
	cmd := exec.CommandContext(t.Context(), python, filepath.Join(root, "e2e", "upstream", "llamacpp.py"),
		filepath.Join(root, "internal", "whencetiny", "testdata", "model-f32.gguf"), "4096")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // t's context has killed it
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("the server says %q: %v", line, err)
	}
	v, _ := vocabulary(t)
	r := rand.New(rand.NewPCG(7, 9))
	whole := 0
	const drawn = 200
	all := append([]string(nil), schemas...)
	for range drawn {
		all = append(all, draw(r, 0).schema)
	}
	for i, schema := range all {
		g := forms(schema)
		compiled, err := New(v, g)
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		text, end := follow(t, url, g, i)
		switch {
		case end == "eos" && compiled.accepts(text):
			whole++
		case end == "limit": // the model goes on, as it may within an endless value
		default:
			t.Errorf("%s: %q ends with %s, and is not an answer", schema, text, end)
		}
	}
	t.Logf("%d of %d answers are whole", whole, len(all))
	if whole < drawn/2 {
		t.Errorf("only %d of %d answers are whole", whole, len(all))
	}
}

// follow returns what the server writes under the grammar of a guide, and how it ended.
func follow(t *testing.T, url string, g *llmv1.Guide, seed int) (text, end string) {
	t.Helper()
	gbnf, err := GBNF(g)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{"prompt": "The value is ", "n_predict": 200, "temperature": 1, "seed": seed, "grammar": gbnf})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/completion", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	var got struct {
		Content string
		Type    string `json:"stop_type"`
	}
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(answer, &got) != nil {
		t.Errorf("%.2000s: %d %s, %v", gbnf, resp.StatusCode, answer, err)
	}
	return got.Content, got.Type
}

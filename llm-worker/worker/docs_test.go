package worker_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/llm-worker/engine/sglang"
	"github.com/whence-dev/whence/llm-worker/engine/vllm"
	"github.com/whence-dev/whence/llm-worker/sample"
)

// TestDocsSayWhatEachEngineHonours keeps the table of docs/engines.md.
func TestDocsSayWhatEachEngineHonours(t *testing.T) {
	columns := []struct {
		name   string
		fields []string
	}{
		{"embedded", sample.Fields()},
		{"vllm", vllm.Sampling()},
		{"sglang, gRPC", sglang.Sampling(false)},
		{"sglang, HTTP", sglang.Sampling(true)},
		{"openai: vLLM", openai.Sampling("vllm")},
		{"SGLang", openai.Sampling("sglang")},
		{"llama.cpp", openai.Sampling("llama.cpp")},
		{"Ollama", openai.Sampling("ollama")},
		{"others", openai.Sampling("others")},
	}
	head, rule := "| |", "|---|"
	for _, c := range columns {
		head += " " + c.name + " |"
		rule += "---|"
	}
	table := head + "\n" + rule + "\n"
	for _, field := range sample.Fields() {
		row := "| `" + field + "` |"
		for _, c := range columns {
			switch {
			case !slices.Contains(c.fields, field):
				row += " |"
			case field == "seed" && strings.HasPrefix(strings.ToLower(c.name), "sglang"):
				row += " if told |"
			default:
				row += " yes |"
			}
		}
		table += row + "\n"
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "engines.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), table) {
		t.Errorf("docs/engines.md does not have this table:\n%s", table)
	}
}

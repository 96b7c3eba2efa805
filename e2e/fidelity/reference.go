package main

import (
	"bytes"
	"context"
	_ "embed" // for the scripts
	"encoding/json"
	"fmt"
	"os/exec"
)

// The references run in their own languages. Each script reads a question from stdin and writes an
// answer to stdout, both as JSON.
var (
	//go:embed tokenizers.mjs
	tokenizersScript string
	//go:embed patterns.mjs
	patternsScript string
	//go:embed files.py
	filesScript string
	//go:embed trained.py
	trainedScript string
	//go:embed templates.py
	templatesScript string
	//go:embed speed.mjs
	speedScript string
)

// python is the system's Python, because Jinja2 is a system package.
const python = "/usr/bin/python3"

func node(script string, args ...string) []string {
	return append([]string{"node", "--input-type=module", "--eval", script, "--"}, args...)
}

// ask runs command with the question, and reads its answer.
func ask(ctx context.Context, command []string, question, answer any) error {
	in, err := json.Marshal(question)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &complaint
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", command[0], err, complaint.Bytes())
	}
	return json.Unmarshal(out.Bytes(), answer)
}

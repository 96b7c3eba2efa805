package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

//go:embed llama.mjs
var llamaScript []byte

// measureLlama measures llama.cpp in a process of its own.
func measureLlama(ctx context.Context, gguf string, o options) (s speed, err error) {
	script := filepath.Join(o.llama, "engine.mjs") // beside its packages, where node looks for them
	if err := os.WriteFile(script, llamaScript, 0o600); err != nil {
		return s, err
	}
	cmd := exec.CommandContext(ctx, "node", script, gguf, strconv.Itoa(o.threads), strconv.Itoa(o.tokens), strconv.Itoa(o.prompt)) //nolint:gosec // our own script
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return s, fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return s, fmt.Errorf("parse the answer %q: %w", out, err)
	}
	return s, nil
}

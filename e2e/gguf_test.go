package e2e

import (
	"path/filepath"
	"testing"
)

// TestGGUFFileAnswersLikeItsDirectory gives chat-service and worker one file instead of a directory.
func TestGGUFFileAnswersLikeItsDirectory(t *testing.T) {
	t.Parallel()
	path, err := filepath.Abs(filepath.Join("..", "internal", "whencetiny", "testdata", "model-f32.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	model := []string{"--model", path, "--model-name", model}
	file, dir := run(t, separate, flags{chat: model, worker: model}), run(t, separate, flags{})
	for _, prompt := range []string{short, long} {
		if got, want := file.answer(t, greedy(prompt)), dir.answer(t, greedy(prompt)); got != want || got == "" {
			t.Errorf("%q: %q, want %q", prompt, got, want)
		}
	}
}

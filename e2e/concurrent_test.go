package e2e

import (
	"fmt"
	"sync"
	"testing"
)

var prompts = []string{
	short, long, "What is Whence?", "What is 2 + 3?", "What is the capital of Spain?", "Please list five fruits.",
	"Tell me a short story about a bear in the forest.", "Please can you count to 20?", "What is 3 times 4?",
	"How do I run Whence?", "Make JSON with name Anna and age 31.", "What does the llm-worker do?",
}

func TestConcurrentStreamsGetTheAnswersOfSingleStreams(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		alone := make([]string, len(prompts))
		for i, prompt := range prompts {
			alone[i] = w.answer(t, greedy(prompt, "max_tokens", 40))
		}
		const streams = 64
		together := make([]string, streams)
		var wg sync.WaitGroup
		for i := range streams {
			wg.Go(func() { together[i] = w.read(t, greedy(prompts[i%len(prompts)], "max_tokens", 40)) })
		}
		wg.Wait()
		for i, got := range together {
			if want := alone[i%len(prompts)]; got != want {
				t.Errorf("%q is answered with %q alone, but with %q among %d streams", prompts[i%len(prompts)], want, got, streams)
			}
		}
		w.idle(t)
	})
}

// read reads one stream to its end. It may run on any goroutine: the returned text describes a
// failure.
func (w *whence) read(t *testing.T, a ask) string {
	a["stream"] = true
	resp, err := w.send(t, a, "")
	if err != nil {
		return err.Error()
	}
	l := newLive(resp)
	defer l.close()
	for !l.done {
		if _, err := l.next(); err != nil || l.err != nil {
			return fmt.Sprintf("%s: %v %+v after %q", resp.Status, err, l.err, l.text.String())
		}
	}
	return l.text.String()
}

// Command engine measures the embedded engine beside llama.cpp: the same random weights, in the shapes
// of Qwen2-0.5B, on the same number of threads.
//
//	engine [--threads N] [--tokens N] [--rounds N] [--llama DIR] [--layers N]
//
// Run it with scripts/bench engine, which installs llama.cpp. The engines take turns, and each figure
// is the best of the rounds, because other work may share the cores. The speed of a model does not
// depend on the values of its weights, so random weights serve as well as trained ones.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

type options struct {
	threads, tokens, prompt, rounds, layers int
	llama                                   string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var o options
	flag.IntVar(&o.threads, "threads", runtime.NumCPU(), "threads of each engine")
	flag.IntVar(&o.tokens, "tokens", 32, "tokens of each answer")
	flag.IntVar(&o.prompt, "prompt", 512, "tokens of the prompt of the prefill")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds")
	flag.IntVar(&o.layers, "layers", qwen.layers, "layers of the model; fewer are quicker")
	flag.StringVar(&o.llama, "llama", "", "`directory` in which node-llama-cpp is installed; empty to measure the embedded engine alone")
	flag.Parse()
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/engine:", err)
		os.Exit(1)
	}
}

// A speed is one engine's tokens per second.
type speed struct {
	Decode1 float64 `json:"decode1"` // one stream
	Decode8 float64 `json:"decode8"` // eight streams, together
	Prefill float64 `json:"prefill"`
}

func (s *speed) best(other speed) {
	s.Decode1, s.Decode8, s.Prefill = max(s.Decode1, other.Decode1), max(s.Decode8, other.Decode8), max(s.Prefill, other.Prefill)
}

// A system is an engine under measurement.
type system struct {
	name    string
	measure func(context.Context) (speed, error)
	speed   speed
}

func run(ctx context.Context, o options, out io.Writer) error {
	if o.threads < 1 || o.tokens < 2 || o.prompt < 1 || o.rounds < 1 || o.layers < 1 {
		return fmt.Errorf("flags must be positive, and --tokens at least 2: %+v", o)
	}
	dir, err := os.MkdirTemp("", "whence-bench-engine-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	model := qwen
	model.layers = o.layers
	gguf := filepath.Join(dir, "model-q8_0.gguf")
	if err := write(model, dir, gguf); err != nil {
		return err
	}
	var systems []*system
	for _, weights := range formats {
		systems = append(systems, &system{name: "Whence, " + weights, measure: func(context.Context) (speed, error) {
			return measureWhence(dir, weights, o)
		}})
	}
	if o.llama != "" {
		systems = append(systems, &system{name: "llama.cpp, Q8_0", measure: func(ctx context.Context) (speed, error) {
			return measureLlama(ctx, gguf, o)
		}})
	}
	for range o.rounds {
		for _, s := range systems {
			runtime.GC() // the last model
			got, err := s.measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			s.speed.best(got)
		}
	}
	_, err = io.WriteString(out, report(o, systems))
	return err
}

func report(o options, systems []*system) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d threads; best of %d rounds; tokens/s of answers of %d tokens, and of a prompt of %d tokens\n\n", o.threads, o.rounds, o.tokens, o.prompt)
	fmt.Fprintln(&out, "| engine and weights | one stream | eight streams | prompt |\n|---|--:|--:|--:|")
	for _, s := range systems {
		fmt.Fprintf(&out, "| %s | %.1f | %.1f | %.0f |\n", s.name, s.speed.Decode1, s.speed.Decode8, s.speed.Prefill)
	}
	if o.llama == "" {
		return out.String()
	}
	theirs := systems[len(systems)-1].speed
	for _, s := range slices.Backward(systems[:len(systems)-1]) {
		fmt.Fprintf(&out, "\n%s: %.2f, %.2f and %.2f of llama.cpp", s.name, s.speed.Decode1/theirs.Decode1, s.speed.Decode8/theirs.Decode8, s.speed.Prefill/theirs.Prefill)
	}
	out.WriteByte('\n')
	return out.String()
}

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	usagelog "github.com/whence-dev/whence/pkg/usage"
)

// loadTools has the tools of habits/python/load.py, by the directory of their packages.
var loadTools = map[string]string{
	"guidellm": "guidellm", "aiperf": "aiperf", "genai-bench": "genai-bench", "vllm-bench-chats": "vllm-bench", "vllm-bench-completions": "vllm-bench",
}

// A measurement is what a load tool says of one request: times in seconds, and tokens.
type measurement struct {
	First, Gap, Whole float64
	Prompt            uint32 // 0 if the tool does not say
	Answer            uint32
}

// recorded returns the same figures of a usage record.
func recorded(r usagelog.Record) measurement {
	m := measurement{Whole: r.Ended.Sub(r.Received).Seconds(), Prompt: r.Prompt, Answer: r.Delivered}
	if r.FirstToken != nil {
		m.First = r.FirstToken.Sub(r.Received).Seconds()
		m.Gap = r.Ended.Sub(*r.FirstToken).Seconds() / float64(r.Delivered-1)
	}
	return m
}

// TestLoadToolsMeasureWhatWeMeasure: load tools run to the end with their default settings, and report what
// our usage records have of the same requests: equal counts, and times whose medians have about the same
// ratios. The first token takes some 0.4 s and the answer 0.8 s more, so that a tool that takes another
// event for the first token is far off on any machine.
func TestLoadToolsMeasureWhatWeMeasure(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	dir := clientsDir(t)
	for tool, environment := range loadTools {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "usage.jsonl")
			served := wideModel(t, 1<<18)
			w := run(t, allInOne, flags{all: []string{"--usage-file", file}, worker: []string{
				"--model", served, "--model-name", model, "--engine", "sim", "--sim-step", "20ms", "--sim-prefill-token", "2ms", "--sim-chunk", "8192", "--no-prefix-cache",
			}})
			seen := measure(t, filepath.Join(dir, environment, "bin", "python"), tool, w.url(""), served)
			w.idle(t)
			if len(seen) == 0 {
				t.Fatal("the tool reports no request")
			}
			var ours []measurement
			polltest.Eventually(t, "a usage record of each request", func() bool {
				ours = nil
				for _, r := range usageRecords(t, file) {
					if r.Reason == "client_gone" && tool == "genai-bench" {
						continue // it leaves the request that it has begun when it has enough
					}
					if r.Reason != "completed" {
						t.Fatalf("%+v", r)
					}
					if r.Surface != "embeddings" && r.FirstToken != nil {
						ours = append(ours, recorded(r))
					}
				}
				return len(ours) >= len(seen)
			})
			compare(t, seen, ours)
		})
	}
}

// measure runs a load tool.
func measure(t *testing.T, python, tool, url, served string) (seen []measurement) {
	t.Helper()
	script, err := filepath.Abs("habits/python/load.py")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), nodePatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, script, tool, url, served)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir)
	var logs bytes.Buffer
	cmd.Stderr = &logs
	endsWithChildren(cmd)
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &seen)
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd, err, out, logs.String())
	}
	return seen
}

// compare compares what a tool has seen with our records. Some tools make requests that they do not count,
// such as one to warm up: the tool's requests are the last ones.
func compare(t *testing.T, seen, ours []measurement) {
	t.Helper()
	if len(ours) > len(seen)+2 {
		t.Errorf("the tool reports %d requests of %d", len(seen), len(ours))
	}
	ours = ours[len(ours)-len(seen):]
	for i, s := range seen {
		if !slices.ContainsFunc(ours, func(o measurement) bool { return o.Answer == s.Answer && (s.Prompt == 0 || o.Prompt == s.Prompt) }) {
			t.Errorf("the tool reports %d and %d tokens of request %d, which no record has", s.Prompt, s.Answer, i+1)
		}
	}
	ratio := func(what string, of func(measurement) float64, low, high float64) {
		r := median(seen, of) / median(ours, of)
		t.Logf("%s: the tool says %.2f times ours", what, r)
		if !(r >= low && r <= high) {
			t.Errorf("the tool's %s is %.2f times ours: %+v, ours %+v", what, r, seen, ours)
		}
	}
	// A tool sees the first token after the service, so its time is longer by its own delays.
	ratio("share of the time to the first token", func(m measurement) float64 { return m.First / m.Whole }, 0.5, 2)
	ratio("time to the first token", func(m measurement) float64 { return m.First }, 0.5, 3)
	ratio("time between tokens", func(m measurement) float64 { return m.Gap }, 0.5, 2)
}

// median returns the median of a figure.
func median(all []measurement, of func(measurement) float64) float64 {
	var figures []float64
	for _, m := range all {
		figures = append(figures, of(m))
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}

// TestGHZMeasuresWhatWeMeasure: ghz finds the service by reflection, calls it with its default settings, and
// reports as many calls and about the same times as our usage records.
func TestGHZMeasuresWhatWeMeasure(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "usage.jsonl")
	w := run(t, separate, flags{chat: []string{"--usage-file", file}, worker: []string{"--engine", "sim", "--sim-step", "20ms"}})
	ghz, err := buildTool(binDir, "ghz", "github.com/bojand/ghz/cmd/ghz")
	if err != nil {
		missing(t, "ghz cannot be built: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), nodePatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, ghz, "--insecure", "--call", "whence.chat.v1.Chat.Generate", "--total", "20", "--concurrency", "2", "--format", "json", "--data",
		`{"chat": {"model": "`+model+`", "messages": [{"role": "user", "content": "What is Whence?"}], "sampling": {"max_tokens": 40, "ignore_eos": true}}}`, w.chat)
	out, err := cmd.Output()
	var report struct {
		Count   int
		Details []struct {
			Latency int64 // ns
			Status  string
		}
	}
	if err == nil {
		err = json.Unmarshal(out, &report)
	}
	if err != nil || report.Count != 20 || len(report.Details) != 20 {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	var seen, ours []measurement
	for _, d := range report.Details {
		if d.Status != "OK" {
			t.Errorf("a call has the status %s", d.Status)
		}
		seen = append(seen, measurement{Whole: float64(d.Latency) / 1e9})
	}
	polltest.Eventually(t, "a usage record of each call", func() bool {
		ours = nil
		for _, r := range usageRecords(t, file) {
			if r.Reason != "completed" || r.Delivered != 40 {
				t.Fatalf("%+v", r)
			}
			ours = append(ours, recorded(r))
		}
		return len(ours) == len(seen)
	})
	whole := func(m measurement) float64 { return m.Whole }
	if r := median(seen, whole) / median(ours, whole); !(r >= 0.5 && r <= 2) {
		t.Errorf("the times of ghz are %.2f times ours: %s", r, out)
	}
}

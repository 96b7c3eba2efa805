package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// A serverMake is a make of model server that is installed on this machine.
type serverMake struct {
	name, version string
	// invariant makes the server compute answers that do not depend on the other requests of its
	// batches: by a variable of the environment, or by an argument.
	invariantEnv, invariantArg string
	// command returns the command line of a server.
	command func(l *launch) []string
	// worker returns the arguments of the worker beside the server.
	worker func(l *launch, model string) []string
}

// A launch says how to start a server.
type launch struct {
	model     string
	port      int
	single    bool // one request at a time
	share     string
	invariant bool
	events    int // the port of its KV events; 0 for none
}

func (l *launch) url() string { return "http://127.0.0.1:" + strconv.Itoa(l.port) }

// kvFlags are the arguments of a worker that listens to the server's KV events.
func (l *launch) kvFlags() []string {
	if l.events == 0 {
		return nil
	}
	return []string{"--upstream-kv-events", "tcp://127.0.0.1:" + strconv.Itoa(l.events)}
}

func (l *launch) kvConfig() string {
	return fmt.Sprintf(`{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:%d"}`, l.events)
}

var vllm = serverMake{
	name: "vllm", invariantEnv: "VLLM_BATCH_INVARIANT=1",
	command: func(l *launch) []string {
		args := []string{"vllm", "serve", l.model, "--host", "127.0.0.1", "--port", strconv.Itoa(l.port), "--gpu-memory-utilization", l.share, "--enable-prefix-caching"}
		if l.single {
			args = append(args, "--max-num-seqs", "1")
		}
		if l.events > 0 {
			args = append(args, "--kv-events-config", l.kvConfig())
		}
		return args
	},
	worker: func(l *launch, model string) []string {
		return append([]string{"--engine", "openai", "--upstream", l.url(), "--model", model}, l.kvFlags()...)
	},
}

var sglang = serverMake{
	name: "sglang", invariantArg: "--enable-deterministic-inference",
	command: func(l *launch) []string {
		args := []string{"python3", "-m", "sglang.launch_server", "--model-path", l.model, "--host", "127.0.0.1", "--port", strconv.Itoa(l.port), "--mem-fraction-static", l.share, "--enable-metrics", "--page-size", "16"}
		if l.single {
			args = append(args, "--max-running-requests", "1")
		}
		if l.events > 0 {
			args = append(args, "--kv-events-config", l.kvConfig())
		}
		return args
	},
	worker: func(l *launch, model string) []string {
		return append([]string{"--engine", "sglang", "--upstream", l.url(), "--model", model}, l.kvFlags()...)
	},
}

// installed returns the servers of a list that are installed, with their versions.
func installed(ctx context.Context, names []string) (all []*serverMake, err error) {
	version := map[string][]string{
		"vllm":   {"vllm", "--version"},
		"sglang": {"python3", "-c", "import sglang; print(sglang.__version__)"},
	}
	for _, name := range names {
		ask := version[name]
		if ask == nil {
			return nil, fmt.Errorf("--engines has %q; it must have vllm and sglang only", name)
		}
		said, err := exec.CommandContext(ctx, ask[0], ask[1:]...).Output()
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s is not installed: %v\n", name, err)
			continue
		}
		m := map[string]serverMake{"vllm": vllm, "sglang": sglang}[name]
		lines := strings.Split(strings.TrimSpace(string(said)), "\n") // libraries may print warnings before it
		m.version = lines[len(lines)-1]
		all = append(all, &m)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("none of %s is installed here", strings.Join(names, ", "))
	}
	return all, nil
}

// smi runs nvidia-smi, and returns the lines that it prints; none without a GPU of NVIDIA.
func smi(ctx context.Context) []string {
	said, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=name", "--format=csv,noheader").Output()
	if err != nil || strings.TrimSpace(string(said)) == "" {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(said)), "\n")
}

func gpus(ctx context.Context) int { return len(smi(ctx)) }

func gpuName(ctx context.Context) string {
	if all := smi(ctx); len(all) > 0 {
		return fmt.Sprintf("%d x %s", len(all), all[0])
	}
	return "a GPU of unknown name"
}

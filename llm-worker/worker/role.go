package worker

import (
	"fmt"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// The roles that a worker can have.
const (
	Both    = "both"    // whole streams
	Prefill = "prefill" // prompts alone, which it reads for others
	Decode  = "decode"  // whole streams, and prompts that others have read
)

// maxTransfer bounds the handover parameters between two workers, in bytes.
const maxTransfer = 1 << 20

var roles = map[string]llmv1.Role{
	"": llmv1.Role_ROLE_BOTH, Both: llmv1.Role_ROLE_BOTH, Prefill: llmv1.Role_ROLE_PREFILL, Decode: llmv1.Role_ROLE_DECODE,
}

// validateRole refuses an unknown role, and a role that the engine does not support: an engine that
// ignored the handover would silently read every prompt twice.
func (c *Config) validateRole() error {
	role, known := roles[c.Role]
	switch {
	case !known:
		return fmt.Errorf("--role is %.64q; it must be %s, %s or %s", c.Role, Both, Prefill, Decode)
	case role != llmv1.Role_ROLE_BOTH && c.Engine != Sim && c.Engine != OpenAI && !c.NeedsRecognition():
		return fmt.Errorf("--role %s needs --engine %s (vLLM) or %s", c.Role, OpenAI, Sim)
	}
	return nil
}

// checkRole refuses requests that do not fit the worker's role.
func checkRole(role llmv1.Role, req *workerv1.TokenRequest) error {
	const param = "kv_transfer"
	switch t := req.GetKvTransfer(); what := t.GetWhat().(type) {
	case *workerv1.KVTransfer_Ask:
		s := req.GetSampling()
		switch {
		case role != llmv1.Role_ROLE_PREFILL:
			return streamerr.InvalidParam(param, "this worker does not hand over prompts; send the request to a worker of role prefill")
		case !what.Ask || req.GetGenerated() > 0:
			return streamerr.InvalidParam(param+".ask", "ask must be true, and generated must be 0")
		case s == nil || s.MaxTokens == nil || *s.MaxTokens != 1:
			return streamerr.InvalidParam("sampling.max_tokens", "max_tokens must be 1 for a handover")
		}
	case *workerv1.KVTransfer_Parameters:
		switch n := len(what.Parameters); {
		case role != llmv1.Role_ROLE_DECODE:
			return streamerr.InvalidParam(param, "this worker does not take over prompts; send the request to a worker of role decode")
		case n == 0 || n > maxTransfer:
			return streamerr.InvalidParam(param+".parameters", "parameters are %d bytes long; they must be 1 to %d", n, maxTransfer)
		}
	default:
		switch {
		case t != nil:
			return streamerr.InvalidParam(param, "%s has neither a request for a handover nor its parameters", param)
		case role == llmv1.Role_ROLE_PREFILL:
			return streamerr.InvalidParam(param, "this worker only reads prompts for other workers")
		}
	}
	return nil
}

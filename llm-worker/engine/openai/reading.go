package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// asksToRead is the parameter with which vLLM's KV connectors (NIXL and others) keep a prefilled
// prompt for another server. The null fields come back filled in for that server.
const asksToRead = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`

// maxRead bounds the handover parameters that come back, in bytes.
const maxRead = 2 << 20

// A prefillCall asks vLLM to read a prompt (prefill) for another server, which decodes. vLLM
// returns the parameters of the handover only in answers that are not streamed.
type prefillCall struct {
	exchange *overhttp.Exchange
	prompt   int // tokens

	answer struct {
		Usage      *usage          `json:"usage"`
		Parameters json.RawMessage `json:"kv_transfer_params"`
	}
}

// Open implements beside.Call: it returns when the prompt is read.
func (r *prefillCall) Open(ctx context.Context) error { return r.exchange.Do(ctx, &r.answer) }

// Next implements beside.Call. vLLM generates at least one token; that token is discarded.
func (r *prefillCall) Next() ([]uint32, *llmv1.End, error) {
	if !isObject(r.answer.Parameters) {
		return nil, nil, beside.Fail(streamerr.EngineFailed, nil, "the server that generates has read the prompt, and does not say where it is: is it started with --kv-transfer-config?")
	}
	u := &llmv1.Usage{PromptTokens: uint32(r.prompt)}
	if said := r.answer.Usage; said != nil {
		u.CachedTokens = said.Details.Cached
	}
	return nil, &llmv1.End{
		Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{beside.Hop}, Finish: llmv1.Finish_FINISH_LENGTH, Usage: u,
	}, nil
}

// Handover implements beside.Reader.
func (r *prefillCall) Handover() []byte { return r.answer.Parameters }

// Stop implements beside.Call.
func (r *prefillCall) Stop() (confirmed bool) {
	r.exchange.HangUp()
	return true // as in call.Stop
}

// read returns the call that makes an upstream prefill a prompt.
func (e *Engine) read(up *upstream, req *workerv1.TokenRequest) (*prefillCall, error) {
	c, err := e.completion(up, req)
	if err != nil {
		return nil, err
	}
	c.Stream, c.StreamOptions, c.ReturnTokenIDs, c.MaxTokens, c.MinTokens, c.Echo = false, nil, false, 1, 0, false
	c.KVTransfer = json.RawMessage(asksToRead)
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return &prefillCall{exchange: e.client.Exchange("/v1/completions", body, maxRead), prompt: len(req.GetPrompt())}, nil
}

// given returns the handover parameters of the request, which another server made. This worker does
// not interpret them, but checks that they are JSON, because they become a part of its request
// body.
func given(req *workerv1.TokenRequest) (json.RawMessage, error) {
	p := req.GetKvTransfer().GetParameters()
	if len(p) == 0 {
		return nil, nil
	}
	if !isObject(p) {
		return nil, streamerr.InvalidParam("kv_transfer.parameters", "parameters must be the JSON object that vLLM returned")
	}
	return p, nil
}

func isObject(b []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")) && json.Valid(b)
}

// errNoHandover refuses a server that a worker with a role cannot use.
var errNoHandover = errors.New("--role requires a server that hands prompts over, which only vLLM does; this server does not identify itself as vLLM")

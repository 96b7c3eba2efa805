package story

import (
	"strings"
	"time"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/textonly"
)

// A Worker is one entry of GET /v1/workers. The worker's own report is from the time Said; before
// the first report its fields are zero.
type Worker struct {
	Name           string `json:"name"`
	Target         string `json:"target"`
	State          string `json:"state"` // "healthy", "suspect" or "down"
	Message        string `json:"message,omitempty"`
	Model          string `json:"model"`
	Leaving        bool   `json:"leaving,omitempty"` // it is no longer listed, and finishes its streams
	Engine         string `json:"engine"`
	Role           string `json:"role,omitempty"`     // "both", "prefill" or "decode"
	Upstream       string `json:"upstream,omitempty"` // the kind of server that generates beside the worker
	Server         string `json:"server,omitempty"`   // that server, for people; see whence.llm.v1.WorkerInfo
	ContextLength  uint32 `json:"context_length"`
	Continues      bool   `json:"continues"` // can continue answers that another worker began
	Generates      bool   `json:"generates"` // answers chats and completions
	Embeds         bool   `json:"embeds"`    // computes embeddings
	Scores         bool   `json:"scores"`    // rates documents
	Streams        uint32 `json:"streams"`   // from the chat-service that was asked, now
	Running        uint32 `json:"running"`   // from all callers, at the time Said, like the following fields
	Queued         uint32 `json:"queued"`
	MaxRunning     uint32 `json:"max_running"`
	MaxQueued      uint32 `json:"max_queued"`
	KVUsedTokens   uint64 `json:"kv_used_tokens"`
	KVTotalTokens  uint64 `json:"kv_total_tokens"`
	KVCachedTokens uint64 `json:"kv_cached_tokens"` // the part of the KV cache that later prompts can reuse
	Said           string `json:"said,omitempty"`   // RFC 3339, UTC
}

// Workers returns the body of GET /v1/workers.
func Workers(all []*chatv1.Worker) []byte {
	list := struct {
		Workers []Worker `json:"workers"`
	}{make([]Worker, 0, len(all))}
	for _, w := range all {
		list.Workers = append(list.Workers, worker(w))
	}
	return marshal(list)
}

func worker(w *chatv1.Worker) Worker {
	info, load := w.GetInfo(), w.GetInfo().GetLoad()
	var said string
	if w.GetSaid() != nil {
		said = w.GetSaid().AsTime().Format(time.RFC3339Nano)
	}
	model := w.GetModel() // the model that the worker is configured for
	if model == "" {
		model = info.GetModel()
	}
	return Worker{
		Name: info.GetInstance(), Target: w.GetTarget(), Message: w.GetMessage(),
		State: strings.ToLower(strings.TrimPrefix(w.GetState().String(), "WORKER_STATE_")),
		Model: model, Leaving: w.GetLeaving(), Engine: info.GetEngine(), Role: role(info), Upstream: info.GetCapabilities().GetUpstream(), Server: info.GetServer(),
		ContextLength: contextOf(info), Continues: info.GetContinues(), Generates: info != nil && !info.GetPoolsOnly(), Embeds: info.GetEmbeds(), Scores: info.GetScores(), Streams: w.GetStreams(),
		Running: load.GetRunning(), Queued: load.GetQueued(), MaxRunning: load.GetMaxRunning(), MaxQueued: load.GetMaxQueued(),
		KVUsedTokens: load.GetKvUsedTokens(), KVTotalTokens: load.GetKvTotalTokens(), KVCachedTokens: load.GetKvCachedTokens(), Said: said,
	}
}

// role returns a worker's role. A worker that has not reported a role takes whole streams.
func role(info *llmv1.WorkerInfo) string {
	if info == nil {
		return ""
	}
	r := max(info.GetRole(), llmv1.Role_ROLE_BOTH)
	return strings.ToLower(strings.TrimPrefix(r.String(), "ROLE_"))
}

// contextOf returns the context length of a worker; 0 if it is unknown.
func contextOf(info *llmv1.WorkerInfo) uint32 {
	if info.GetContextLength() == textonly.NoLimit {
		return 0
	}
	return info.GetContextLength()
}

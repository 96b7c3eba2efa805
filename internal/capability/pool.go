package capability

import (
	"cmp"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Abilities says what a model makes that only embeds or scores, for people.
func Abilities(embeds, scores bool) string {
	switch {
	case embeds && scores:
		return "makes embeddings (POST /v1/embeddings) and scores (POST /v1/rerank, /v1/score)"
	case embeds:
		return "makes embeddings (POST /v1/embeddings)"
	default:
		return "makes scores (POST /v1/rerank, /v1/score)"
	}
}

// NoGeneration refuses a chat or a completion of a worker whose model only pools.
func NoGeneration(info *llmv1.WorkerInfo) *streamerr.Error {
	return streamerr.InvalidParam("model", "the model %q does not generate: it %s; its server is %s",
		info.GetModel(), Abilities(info.GetEmbeds(), info.GetScores()), cmp.Or(info.GetCapabilities().GetUpstream(), info.GetEngine()))
}

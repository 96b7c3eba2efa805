package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
)

// A scorer is a form in which servers rate documents for a query.
type scorer struct {
	path string
	// body returns the body of a request, for one query, or for one for each document.
	body func(model string, queries, documents []string) any
	// pairs reports that a request may have a query for each document.
	pairs bool
}

// The forms of servers.
var (
	// vLLM's, which another Whence has, too.
	scoreAPI = &scorer{"/score", func(model string, queries, documents []string) any {
		return map[string]any{"model": model, "text_1": queries, "text_2": documents}
	}, true}
	// Jina's, which llama.cpp, SGLang and many others have.
	rerankAPI = &scorer{"/v1/rerank", func(model string, queries, documents []string) any {
		return map[string]any{"model": model, "query": queries[0], "documents": documents}
	}, false}
	// That of Hugging Face's text-embeddings-inference.
	teiAPI = &scorer{"/rerank", func(_ string, queries, documents []string) any {
		return map[string]any{"query": queries[0], "texts": documents}
	}, false}
)

// A rating is the score of one document.
type rating struct {
	Index     int      `json:"index"`
	Score     *float32 `json:"score"`
	Relevance *float32 `json:"relevance_score"` // Jina's name for it
}

// ratings is the part of the answer that the engine reads, in any form.
type ratings struct {
	Data    []rating // of the form of scores
	Results []rating // of reranks
	Usage   struct {
		Prompt uint32 `json:"prompt_tokens"`
		Total  uint32 `json:"total_tokens"`
	}
}

// UnmarshalJSON implements json.Unmarshaler. Some servers answer with a list alone.
func (r *ratings) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte("[")) {
		return json.Unmarshal(b, &r.Results)
	}
	type object ratings
	return json.Unmarshal(b, (*object)(r))
}

// A scoreCall is a request for scores, in as many shares as the server takes.
type scoreCall struct {
	shares    []*overhttp.Exchange
	documents []int // of each share
	estimated uint32
}

// askScore returns the call of a request for scores.
func (e *Engine) askScore(up *upstream, req *workerv1.ScoreRequest) (beside.PoolingCall[*workerv1.ScoreResponse], error) {
	queries, documents := req.GetQueries(), req.GetDocuments()
	size := up.share(len(documents))
	if len(queries) > 1 && !up.scores.pairs {
		size = 1
	}
	c := &scoreCall{estimated: uint32(textonly.Count(queries...) + textonly.Count(documents...))}
	for i, share := range slices.Collect(slices.Chunk(documents, size)) {
		of := queries
		if len(queries) > 1 {
			of = queries[i*size : i*size+len(share)]
		}
		body, err := json.Marshal(up.scores.body(up.model, of, share))
		if err != nil {
			return nil, err
		}
		c.shares = append(c.shares, e.client.Exchange(up.scores.path, body, maxVectors))
		c.documents = append(c.documents, len(share))
	}
	return c, nil
}

// Do implements beside.PoolingCall.
func (c *scoreCall) Do(ctx context.Context) (*workerv1.ScoreResponse, error) {
	out := &workerv1.ScoreResponse{End: beside.PoolingEnd()}
	used := out.GetEnd().GetUsage()
	for i, share := range c.shares {
		var r ratings
		if err := share.Do(ctx, &r); err != nil {
			return nil, err
		}
		part, err := r.ordered(c.documents[i])
		if err != nil {
			return nil, beside.Broken(err)
		}
		out.Scores = append(out.Scores, part...)
		used.PromptTokens += max(r.Usage.Prompt, r.Usage.Total)
	}
	if used.GetPromptTokens() == 0 { // not all servers count
		used.PromptTokens = c.estimated
	}
	return out, nil
}

// ordered returns the scores of n documents, in their order.
func (r *ratings) ordered(n int) ([]float32, error) {
	all := slices.Concat(r.Data, r.Results)
	if len(all) != n {
		return nil, fmt.Errorf("%d scores for %d documents", len(all), n)
	}
	scores, seen := make([]float32, n), make([]bool, n)
	for _, d := range all {
		switch {
		case d.Index < 0 || d.Index >= n || seen[d.Index]:
			return nil, fmt.Errorf("a score for document %d of %d, or two", d.Index, n)
		case d.Score != nil:
			scores[d.Index] = *d.Score
		case d.Relevance != nil:
			scores[d.Index] = *d.Relevance
		default:
			return nil, fmt.Errorf("document %d has no score", d.Index)
		}
		seen[d.Index] = true
	}
	return scores, nil
}

// Stop implements beside.PoolingCall.
func (c *scoreCall) Stop() (confirmed bool) { return hangUp(c.shares) }

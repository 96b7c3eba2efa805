package chat

import (
	"context"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/prompt"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A ScoreEngine rates documents.
type ScoreEngine = stream.Engine[*chatv1.ScoreRequest, *chatv1.ScoreResponse]

// Score returns an engine that rates documents with m over worker. Texts pass as they are: only the server
// knows how its model joins a query and a document.
func Score(m *Model, worker stream.Engine[*workerv1.ScoreRequest, *workerv1.ScoreResponse]) ScoreEngine {
	return unary(worker, m.scoreRequest, func(asked *workerv1.ScoreRequest, out *workerv1.ScoreResponse) (*chatv1.ScoreResponse, error) {
		if got, want := len(out.GetScores()), len(asked.GetDocuments()); got != want {
			return nil, streamerr.New(streamerr.EngineFailed, "the worker has sent %d scores for %d documents", got, want)
		}
		for i, score := range out.GetScores() {
			if score-score != 0 { // NaN or infinite
				return nil, streamerr.New(streamerr.EngineFailed, "score %d of the worker is %v", i, score)
			}
		}
		return &chatv1.ScoreResponse{Scores: out.GetScores(), Model: m.Name, End: out.GetEnd()}, nil
	})
}

// scoreRequest checks the texts, and returns the worker's request with an estimate of its tokens.
func (m *Model) scoreRequest(_ context.Context, req *chatv1.ScoreRequest) (asked *workerv1.ScoreRequest, tokens int, err error) {
	switch queries, documents := len(req.GetQueries()), len(req.GetDocuments()); {
	case documents == 0 || documents > maxInputs:
		return nil, 0, streamerr.InvalidParam("documents", "there are %d documents; there must be 1 to %d", documents, maxInputs)
	case queries != 1 && queries != documents:
		return nil, 0, streamerr.InvalidParam("queries", "there are %d queries for %d documents; there must be one, or one for each", queries, documents)
	}
	if err := m.poolsItself(req.GetModel(), "scores"); err != nil {
		return nil, 0, err
	}
	asked = &workerv1.ScoreRequest{StreamId: req.GetStreamId(), Model: m.Name, Claim: req.GetClaim()}
	if asked.Queries, err = cleaned("queries", req.GetQueries()); err != nil {
		return nil, 0, err
	}
	if asked.Documents, err = cleaned("documents", req.GetDocuments()); err != nil {
		return nil, 0, err
	}
	if size := proto.Size(asked); size > maxEmbedSize {
		return nil, 0, streamerr.InvalidParam("documents", "all texts take %d bytes; a request to a worker can have at most %d: send fewer documents", size, maxEmbedSize)
	}
	return asked, textonly.Count(asked.GetQueries()...) + textonly.Count(asked.GetDocuments()...), nil
}

// cleaned returns texts as a prompt has them, and refuses empty ones.
func cleaned(field string, texts []string) ([]string, error) {
	all := make([]string, len(texts))
	for i, text := range texts {
		param := fmt.Sprintf("%s[%d]", field, i)
		switch all[i] = prompt.Clean(text); {
		case all[i] == "":
			return nil, streamerr.InvalidParam(param, "%s is empty", param)
		case !utf8.ValidString(text):
			return nil, streamerr.InvalidParam(param, "%s must be UTF-8", param)
		}
	}
	return all, nil
}

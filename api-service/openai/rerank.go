package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Scores is a body of POST /v1/rerank, in the form of Jina, Cohere and vLLM or in that of text-embeddings-inference, or
// of POST /v1/score, in vLLM's.
type Scores struct {
	Request *chatv1.ScoreRequest
	Timeout time.Duration // maximum duration of the answer; 0 means no limit

	began     time.Time
	top       uint32 // of a rerank: the number of results; 0 for all
	hidesText bool   // of a rerank: the results leave the documents out
	showsText bool   // of a rerank in the form of text-embeddings-inference, whose results leave them out by default
	queries   texts
	documents texts
	in        *strict.Reading
}

// texts is where the body has a list of texts: its field, and whether the field is an array.
type texts struct {
	field string
	list  bool
}

// sharedOfScores are the fields of both bodies.
var sharedOfScores = strict.Table[*Scores]{Honoured: map[string]strict.Setter[*Scores]{
	"model": func(s *Scores, param string, raw json.RawMessage) (err error) {
		s.Request.Model, err = text(param, raw)
		return err
	},
	"timeout": func(s *Scores, param string, raw json.RawMessage) (err error) {
		s.Timeout, err = timeout(s.in, param, raw)
		return err
	},
	"service_tier": func(s *Scores, param string, raw json.RawMessage) (err error) {
		s.Request.Claim, err = claim(s.in, param, raw)
		return err
	},
},
	Ignored: []string{"user", "metadata"},
	Unsupported: []string{
		"activation", "chat_template_kwargs", "instruction", "max_tokens_per_doc", "max_tokens_per_query", "mm_processor_kwargs", "priority",
		"request_id", "softmax", "truncate", "truncate_prompt_tokens", "truncation", "use_activation",
	},
}

var rerankFields = sharedOfScores.And(strict.Table[*Scores]{Honoured: map[string]strict.Setter[*Scores]{
	"query": func(s *Scores, param string, raw json.RawMessage) error {
		query, err := text(param, raw)
		s.Request.Queries, s.queries = []string{query}, texts{param, false}
		return err
	},
	"documents": func(s *Scores, param string, raw json.RawMessage) error {
		return s.read(&s.Request.Documents, &s.documents, param, raw)
	},
	textsField: func(s *Scores, param string, raw json.RawMessage) error {
		return s.read(&s.Request.Documents, &s.documents, param, raw)
	},
	"return_text": func(s *Scores, param string, raw json.RawMessage) (err error) {
		s.showsText, err = strict.Boolean(param, raw)
		return err
	},
	"top_n": func(s *Scores, param string, raw json.RawMessage) error {
		n, err := count(param, raw, 0)
		if err == nil {
			s.top = *n
		}
		return err
	},
	"return_documents": func(s *Scores, param string, raw json.RawMessage) error {
		shows, err := strict.Boolean(param, raw)
		s.hidesText = !shows
		return err
	},
}, Unsupported: []string{"max_chunks_per_doc", "rank_fields", "raw_scores", "return_embeddings", "truncation_direction"}})

// textsField has the documents of a rerank in the form of text-embeddings-inference.
const textsField = "texts"

// isPlain reports whether a rerank has the form of text-embeddings-inference, which serves one model: a body
// need not name it, and the answer is a list.
func (s *Scores) isPlain() bool { return s.documents.field == textsField }

// scoreFields has vLLM's pairs of names, of which a body has one.
var scoreFields = sharedOfScores.And(strict.Table[*Scores]{Honoured: map[string]strict.Setter[*Scores]{
	"text_1": setQueries, "data_1": setQueries, "queries": setQueries,
	"text_2": setDocuments, "data_2": setDocuments, "documents": setDocuments, "items": setDocuments,
}})

func setQueries(s *Scores, param string, raw json.RawMessage) error {
	return s.read(&s.Request.Queries, &s.queries, param, raw)
}

func setDocuments(s *Scores, param string, raw json.RawMessage) error {
	return s.read(&s.Request.Documents, &s.documents, param, raw)
}

// read parses a text or a list of texts. Each text may also be an object with the member text.
func (s *Scores) read(to *[]string, where *texts, param string, raw json.RawMessage) error {
	if where.field != "" {
		return streamerr.InvalidParam(param, "%s and %s are two names of one field; leave one of them out", where.field, param)
	}
	*where = texts{param, raw[0] == '['}
	items := []json.RawMessage{raw}
	if where.list {
		var err error
		if items, err = array(param, raw); err != nil {
			return err
		}
		if err := call.CheckInputs(param, len(items)); err != nil {
			return err
		}
	}
	for i, item := range items {
		at := param
		if where.list {
			at = fmt.Sprintf("%s[%d]", param, i)
		}
		document, err := s.document(at, item)
		if err != nil {
			return err
		}
		*to = append(*to, document)
	}
	return nil
}

// document reads a text, or the text of an object.
func (s *Scores) document(param string, raw json.RawMessage) (string, error) {
	if raw[0] != '{' {
		return text(param, raw)
	}
	fields, err := s.in.Members(param, raw, "text")
	if err != nil {
		return "", err
	}
	if fields["text"] == nil {
		return "", streamerr.InvalidParam(param+".text", "%s.text is missing: only documents of text are supported", param).WithCode(streamerr.CodeMissing)
	}
	return text(param+".text", fields["text"])
}

// RerankFields returns how each field of a rerank is treated, and ScoreFields each field of a score.
func RerankFields() map[string]string { return rerankFields.Fields() }

// ScoreFields is RerankFields for POST /v1/score.
func ScoreFields() map[string]string { return scoreFields.Fields() }

// A Rerank is a body of POST /v1/rerank.
type Rerank struct{ Scores }

// ParseRerank parses a body of POST /v1/rerank. Its errors are as those of ParseChat.
func ParseRerank(body []byte, in *strict.Reading) (*Rerank, error) {
	s, err := parseScores(body, &rerankFields, "query", "documents", in)
	if err != nil {
		return nil, err
	}
	return &Rerank{*s}, nil
}

// ParseScore parses a body of POST /v1/score. Its errors are as those of ParseChat.
func ParseScore(body []byte, in *strict.Reading) (*Scores, error) {
	s, err := parseScores(body, &scoreFields, "text_1", "text_2", in)
	if err != nil {
		return nil, err
	}
	if queries, documents := len(s.Request.GetQueries()), len(s.Request.GetDocuments()); queries != 1 && queries != documents {
		return nil, streamerr.InvalidParam(s.queries.field, "%s has %d texts, and %s %d; there must be one, or one for each", s.queries.field, queries, s.documents.field, documents)
	}
	return s, nil
}

// parseScores parses a body. query and document are the names of its required fields.
func parseScores(body []byte, table *strict.Table[*Scores], query, document string, in *strict.Reading) (*Scores, error) {
	fields, err := strict.Fields(body)
	if err != nil {
		return nil, err
	}
	s := &Scores{Request: &chatv1.ScoreRequest{}, in: in, began: time.Now()}
	if err := table.Parse(fields, s, in); err != nil {
		return nil, err
	}
	missing := func(field string) (*Scores, error) {
		return nil, streamerr.InvalidParam(field, "%s is missing or empty", field).WithCode(streamerr.CodeMissing)
	}
	switch {
	case s.Request.GetModel() == "" && !s.isPlain():
		return missing("model")
	case len(s.Request.GetQueries()) == 0:
		return missing(cmp.Or(s.queries.field, query))
	case len(s.Request.GetDocuments()) == 0:
		return missing(cmp.Or(s.documents.field, document))
	}
	return s, nil
}

// Param converts a field name of the IDL, which an inner hop uses in its errors, to its name in the
// body.
func (s *Scores) Param(inner string) string {
	if strings.HasPrefix(inner, "queries") {
		return call.InputParam("inputs"+strings.TrimPrefix(inner, "queries"), s.queries.field, s.queries.list)
	}
	if strings.HasPrefix(inner, "documents") {
		return call.InputParam("inputs"+strings.TrimPrefix(inner, "documents"), s.documents.field, s.documents.list)
	}
	return inner
}

// Call returns the edge's view of a request for scores.
func (s *Scores) Call() *call.Scores {
	return &call.Scores{Request: s.Request, Timeout: s.Timeout, Param: s.Param, Answer: s.Answer}
}

// Call returns the edge's view of a rerank.
func (r *Rerank) Call() *call.Scores {
	return &call.Scores{Request: r.Request, Timeout: r.Timeout, Param: r.Param, Answer: r.Answer}
}

// Prefixes of the ids of answers.
const (
	rerankPrefix = "rerank-"
	scorePrefix  = "score-"
)

type score struct {
	Index  int     `json:"index"`
	Object string  `json:"object"`
	Score  float32 `json:"score"`
}

// Answer returns the body of the answer: a score for each document, in their order.
func (s *Scores) Answer(resp *chatv1.ScoreResponse) []byte {
	used := resp.GetEnd().GetUsage().GetPromptTokens()
	list := struct {
		ID      string         `json:"id"`
		Object  string         `json:"object"`
		Created int64          `json:"created"`
		Model   string         `json:"model"`
		Data    []score        `json:"data"`
		Usage   embeddingUsage `json:"usage"`
	}{scorePrefix + s.Request.GetStreamId(), "list", s.began.Unix(), resp.GetModel(), make([]score, 0, len(resp.GetScores())), embeddingUsage{used, used}}
	for i, v := range resp.GetScores() {
		list.Data = append(list.Data, score{i, "score", v})
	}
	return marshal(list)
}

type rerankResult struct {
	Index    int             `json:"index"`
	Document *rerankDocument `json:"document,omitempty"`
	Score    float32         `json:"relevance_score"`
}

type rerankDocument struct {
	Text string `json:"text"`
}

// A plainResult is a result in the form of text-embeddings-inference.
type plainResult struct {
	Index int     `json:"index"`
	Score float32 `json:"score"`
	Text  *string `json:"text,omitempty"`
}

// Answer returns the body of the answer: the documents by their scores, the most relevant first.
func (r *Rerank) Answer(resp *chatv1.ScoreResponse) []byte {
	used := resp.GetEnd().GetUsage().GetPromptTokens()
	results := make([]rerankResult, 0, len(resp.GetScores()))
	for i, v := range resp.GetScores() {
		one := rerankResult{Index: i, Score: v}
		if !r.hidesText && (r.showsText || !r.isPlain()) {
			one.Document = &rerankDocument{r.Request.GetDocuments()[i]}
		}
		results = append(results, one)
	}
	slices.SortStableFunc(results, func(a, b rerankResult) int { return cmp.Compare(b.Score, a.Score) })
	if n := int(r.top); n > 0 && n < len(results) {
		results = results[:n]
	}
	if r.isPlain() {
		return marshal(plain(results))
	}
	return marshal(struct {
		ID      string         `json:"id"`
		Model   string         `json:"model"`
		Usage   embeddingUsage `json:"usage"`
		Results []rerankResult `json:"results"`
	}{rerankPrefix + r.Request.GetStreamId(), resp.GetModel(), embeddingUsage{used, used}, results})
}

// plain returns results in the form of text-embeddings-inference.
func plain(results []rerankResult) []plainResult {
	all := make([]plainResult, len(results))
	for i, one := range results {
		all[i] = plainResult{Index: one.Index, Score: one.Score}
		if one.Document != nil {
			all[i].Text = &one.Document.Text
		}
	}
	return all
}

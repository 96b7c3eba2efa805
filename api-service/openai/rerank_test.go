package openai_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func rerank(body string, in *strict.Reading) (*call.Scores, error) {
	r, err := openai.ParseRerank([]byte(body), in)
	if err != nil {
		return nil, err
	}
	return r.Call(), nil
}

func score(body string, in *strict.Reading) (*call.Scores, error) {
	s, err := openai.ParseScore([]byte(body), in)
	if err != nil {
		return nil, err
	}
	return s.Call(), nil
}

func TestRerankIsReadInAllForms(t *testing.T) {
	for documents, want := range map[string]struct {
		documents []string
		param     string // of the first document
	}{
		`["a","b"]`:                 {[]string{"a", "b"}, "documents[0]"},
		`[{"text":"a"},"b"]`:        {[]string{"a", "b"}, "documents[0]"}, // Cohere's first version
		`"a"`:                       {[]string{"a"}, "documents"},         // vLLM
		`[{"text":"a","title":""}]`: {[]string{"a"}, "documents[0]"},
	} {
		c, err := rerank(`{"model":"m","query":"q","documents":`+documents+`,"top_n":0,"return_documents":null,"timeout":2,"service_tier":"flex","user":"u"}`, nil)
		if err != nil {
			t.Fatalf("%s: %v", documents, err)
		}
		r := c.Request
		if r.GetModel() != "m" || !slices.Equal(r.GetQueries(), []string{"q"}) || !slices.Equal(r.GetDocuments(), want.documents) || r.GetClaim().GetTier() != llmv1.Tier_TIER_FLEX || c.Timeout != 2*time.Second {
			t.Error(r, c.Timeout)
		}
		for inner, param := range map[string]string{"documents[0]": want.param, "queries[0]": "query", "queries": "query", "model": "model"} {
			if got := c.Param(inner); got != param {
				t.Errorf("%s is %s", inner, got)
			}
		}
	}
}

func TestRerankSortsByScore(t *testing.T) {
	resp := &chatv1.ScoreResponse{Model: "m", Scores: []float32{0.25, 2, -1, 2}, End: &llmv1.End{Usage: &llmv1.Usage{PromptTokens: 9}}}
	for fields, want := range map[string]string{
		`"top_n":2`: `{"id":"rerank-s1","model":"m","usage":{"prompt_tokens":9,"total_tokens":9},"results":[{"index":1,"document":{"text":"b"},"relevance_score":2},{"index":3,"document":{"text":"d"},"relevance_score":2}]}`,
		`"top_n":9,"return_documents":false`: `{"id":"rerank-s1","model":"m","usage":{"prompt_tokens":9,"total_tokens":9},` +
			`"results":[{"index":1,"relevance_score":2},{"index":3,"relevance_score":2},{"index":0,"relevance_score":0.25},{"index":2,"relevance_score":-1}]}`,
	} {
		c, err := rerank(`{"model":"m","query":"q","documents":["a","b","c","d"],`+fields+`}`, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Request.StreamId = "s1"
		if got := string(c.Answer(resp)); got != want {
			t.Errorf("%s: %s", fields, got)
		}
	}
}

func TestScoresAreReadUnderAllNames(t *testing.T) {
	for _, names := range [][2]string{{"text_1", "text_2"}, {"queries", "documents"}, {"queries", "items"}, {"data_1", "data_2"}} {
		c, err := score(fmt.Sprintf(`{"model":"m",%q:["q","r"],%q:["a","b"]}`, names[0], names[1]), nil)
		if err != nil || !slices.Equal(c.Request.GetQueries(), []string{"q", "r"}) || !slices.Equal(c.Request.GetDocuments(), []string{"a", "b"}) ||
			c.Param("queries[1]") != names[0]+"[1]" || c.Param("documents[1]") != names[1]+"[1]" {
			t.Error(names, c, err)
		}
		c, err = score(fmt.Sprintf(`{"model":"m",%q:"q",%q:["a","b"]}`, names[0], names[1]), nil)
		if err != nil || c.Param("queries[0]") != names[0] {
			t.Fatal(names, err)
		}
		c.Request.StreamId = "s1"
		got := string(c.Answer(&chatv1.ScoreResponse{Model: "m", Scores: []float32{0.5, 1}, End: &llmv1.End{Usage: &llmv1.Usage{PromptTokens: 9}}}))
		if !strings.HasPrefix(got, `{"id":"score-s1","object":"list","created":`) ||
			!strings.HasSuffix(got, `,"model":"m","data":[{"index":0,"object":"score","score":0.5},{"index":1,"object":"score","score":1}],"usage":{"prompt_tokens":9,"total_tokens":9}}`) {
			t.Error(got)
		}
	}
}

func TestInvalidScoresAreRefusedByField(t *testing.T) {
	many := `["x"` + strings.Repeat(`,"x"`, 2048) + `]`
	for body, param := range map[string]string{
		``:                                "",
		`{"query":"q","documents":["a"]}`: "model",
		`{"model":"m","documents":["a"]}`: "query",
		`{"model":"m","query":"q"}`:       "documents",
		`{"model":"m","query":["q"],"documents":["a"]}`:                    "query",
		`{"model":"m","query":"q","documents":[]}`:                         "documents",
		`{"model":"m","query":"q","documents":["a",1]}`:                    "documents[1]",
		`{"model":"m","query":"q","documents":[{"content":[]}]}`:           "documents[0].text",
		`{"model":"m","query":"q","documents":[{"text":1}]}`:               "documents[0].text",
		`{"model":"m","query":"q","documents":` + many + `}`:               "documents",
		`{"model":"m","query":"q","documents":["a"],"top_n":-1}`:           "top_n",
		`{"model":"m","query":"q","documents":["a"],"return_documents":1}`: "return_documents",
	} {
		if c, err := rerank(body, nil); err == nil || streamerr.As(err).Param != param {
			t.Errorf("%.80s: %v %v", body, c, err)
		}
	}
	for body, param := range map[string]string{
		`{"model":"m","text_2":["a"]}`:                                "text_1",
		`{"model":"m","queries":"q"}`:                                 "text_2",
		`{"model":"m","queries":["q","r"],"items":["a","b","c"]}`:     "queries",
		`{"model":"m","queries":"q","text_1":"q","text_2":"a"}`:       "text_1",
		`{"model":"m","queries":"q","documents":["a"],"items":["a"]}`: "items",
	} {
		if c, err := score(body, nil); err == nil || streamerr.As(err).Param != param {
			t.Errorf("%s: %v %v", body, c, err)
		}
	}
	if _, err := rerank(`{"model":"m","query":"q","documents":["a"],"max_tokens_per_doc":5}`, &strict.Reading{Strict: true}); streamerr.As(err).Param != "max_tokens_per_doc" {
		t.Error(err)
	}
}

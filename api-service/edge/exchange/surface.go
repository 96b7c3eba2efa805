package exchange

import (
	"strings"

	"github.com/cloudwego/hertz/pkg/app"
)

// surfaces has the names of the APIs that create streams, by route. Usage records and reports
// contain them.
var surfaces = map[string]string{
	"/v1/chat/completions": "chat",
	"/v1/completions":      "completions",
	"/v1/embeddings":       "embeddings",
	"/rerank":              "rerank",
	"/v1/rerank":           "rerank",
	"/v2/rerank":           "rerank",
	"/score":               "score",
	"/v1/score":            "score",
	"/generate":            "generate",
	"/v1/messages":         "messages",
	"/v1/streams":          "streams",
	"/v1/converse":         "converse",
	"/v1/responses":        "responses", "/v1/responses/compact": "responses",
	"/api/chat":       "ollama",
	"/api/generate":   "ollama",
	"/api/embed":      "ollama",
	"/api/embeddings": "ollama",
}

// Surface returns the name of the API that a request came by. For a route without a name it returns
// the route.
func Surface(c *app.RequestContext) string {
	route := strings.TrimSuffix(c.FullPath(), "/")
	if word, known := surfaces[route]; known {
		return word
	}
	return strings.TrimPrefix(route, "/")
}

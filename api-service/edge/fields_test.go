package edge_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/ollama"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/responses"
	"github.com/whence-dev/whence/api-service/sglang"
)

var rewrite = flag.Bool("rewrite", false, "write the table of fields in docs/reference")

// TestTheDocsListTheFieldsOfEachSurface checks the table of fields in docs/reference/fields.md.
func TestTheDocsListTheFieldsOfEachSurface(t *testing.T) {
	var table strings.Builder
	table.WriteString("| route | honoured | without effect | left out | refused |\n|---|---|---|---|---|\n")
	for _, surface := range []struct {
		route  string
		fields map[string]string
	}{
		{"/v1/chat/completions", openai.ChatFields()},
		{"/v1/completions", openai.CompletionFields()},
		{"/v1/embeddings", openai.EmbeddingFields()},
		{"/v1/rerank", openai.RerankFields()},
		{"/v1/score", openai.ScoreFields()},
		{"/v1/responses", responses.Fields()},
		{"/v1/messages", anthropic.Fields()},
		{"/v1/messages/count_tokens", anthropic.CountFields()},
		{"/generate", sglang.Fields()},
		{"/api/chat", ollama.ChatFields()},
		{"/api/generate", ollama.GenerateFields()},
		{"/api/chat (options)", ollama.OptionFields()},
		{"/api/embed", ollama.EmbedFields()},
		{"/api/embeddings", ollama.EmbeddingsFields()},
	} {
		fmt.Fprintf(&table, "| `%s` |", surface.route)
		for _, state := range []string{"honoured", "ignored", "unsupported", "refused"} {
			var names []string
			for _, name := range slices.Sorted(maps.Keys(surface.fields)) {
				if surface.fields[name] == state {
					names = append(names, "`"+name+"`")
				}
			}
			fmt.Fprintf(&table, " %s |", strings.Join(names, ", "))
		}
		table.WriteString("\n")
	}
	const path, begin, end = "../../docs/reference/fields.md", "<!-- fields -->\n", "<!-- end -->"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(doc), begin)
	got, tail, ok := strings.Cut(rest, end)
	if *rewrite {
		if err := os.WriteFile(path, []byte(head+begin+table.String()+end+tail), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if !ok || got != table.String() {
		t.Errorf("%s differs from the tables of fields; go test ./api-service/edge -run Fields -rewrite writes it", path)
	}
}

package edge_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/responses"
	"github.com/whence-dev/whence/api-service/sglang"
)

// TestTheDocsListTheFieldsOfEachSurface checks the table of fields in docs/reference/fields.md.
func TestTheDocsListTheFieldsOfEachSurface(t *testing.T) {
	var table strings.Builder
	table.WriteString("| route | honoured | ignored | refused |\n|---|---|---|---|\n")
	for _, surface := range []struct {
		route  string
		fields map[string]string
	}{
		{"/v1/chat/completions", openai.ChatFields()},
		{"/v1/completions", openai.CompletionFields()},
		{"/v1/responses", responses.Fields()},
		{"/v1/messages", anthropic.Fields()},
		{"/v1/messages/count_tokens", anthropic.CountFields()},
		{"/generate", sglang.Fields()},
	} {
		fmt.Fprintf(&table, "| `%s` |", surface.route)
		for _, state := range []string{"honoured", "ignored", "refused"} {
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
	doc, err := os.ReadFile("../../docs/reference/fields.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "<!-- fields -->\n")
	if got, _, ok := strings.Cut(rest, "<!-- end -->"); !ok || got != table.String() {
		t.Errorf("docs/reference/fields.md must have between <!-- fields --> and <!-- end -->:\n%s", table.String())
	}
}

package features

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/doctable"
	"github.com/whence-dev/whence/llm-worker/sample"
)

var rewrite = flag.Bool("rewrite", false, "write the table into docs/reference/engines.md instead of comparing it")

const (
	tableBegins = "<!-- table: fields by engine, which `go test ./llm-worker/engine/features -rewrite` makes -->\n"
	tableEnds   = "<!-- end of table -->\n"
)

// TestDocsShowTheTable keeps the table of docs/reference/engines.md.
func TestDocsShowTheTable(t *testing.T) {
	doctable.Keep(t, filepath.Join("..", "..", "..", "docs", "reference", "engines.md"), tableBegins, tableEnds, markdown(), *rewrite, "go test ./llm-worker/engine/features -rewrite")
}

// markdown returns the table with engines as columns.
func markdown() string {
	head, rule := "| |", "|---|"
	for _, r := range Table() {
		head += " " + r.Title + " |"
		rule += "---|"
	}
	var b strings.Builder
	b.WriteString(head + "\n" + rule + "\n")
	for _, field := range sample.Fields() {
		b.WriteString("| `" + field + "` |")
		for _, r := range Table() {
			b.WriteString(strings.TrimRight(" "+cell(r, field), " ") + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// cell says whether an engine honours a field.
func cell(r *Row, field string) string {
	switch {
	case !r.Has(field, r.Reported...):
		return ""
	case !r.Has(field):
		return "if reported"
	case r.IsUnsure(field):
		return "perhaps"
	case field == "logprobs" && r.SampledLogprobs:
		return "as drawn"
	case field == "guide" && r.Guides == llmv1.GuideSupport_GUIDE_SUPPORT_SCHEMA:
		return "a schema"
	default:
		return "yes"
	}
}

func TestRowsNameFieldsThatExist(t *testing.T) {
	known := strings.Join(sample.Fields(), " ") + " "
	for _, r := range Table() {
		for _, list := range [][]string{r.Lacks, r.Reported, r.Unsure} {
			for _, field := range list {
				if !strings.Contains(known, field+" ") {
					t.Errorf("%s: Sampling has no field %s", r.Title, field)
				}
			}
		}
		if r.Has("guide", r.Reported...) != (r.Guides != llmv1.GuideSupport_GUIDE_SUPPORT_UNSPECIFIED) {
			t.Errorf("%s: the row says that guides are honoured, but not which, or the reverse", r.Title)
		}
	}
}

func TestEngineHonoursAFieldThatItsServerTellsOf(t *testing.T) {
	if SGLangHTTP.Has("seed") || !SGLangHTTP.Has("seed", "seed") || SGLangGRPC.Has("seed", "seed") {
		t.Error("a server's report changes more or less than the field that it reports")
	}
	if n := len(SGLangHTTP.Capabilities("seed").GetSampling()); n != len(SGLangHTTP.Capabilities().GetSampling())+1 {
		t.Error(n)
	}
}

package command

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/printable"
)

// modelTexts are the places of texts beside calls.
type modelTexts struct {
	Latest          string `json:"latest"`
	Earlier         string `json:"earlier"`
	Reasoned        string `json:"reasoned"`
	EarlierReasoned string `json:"earlier_reasoned"`
}

// modelsShow returns the command models show.
func modelsShow() *cobra.Command {
	var api remote
	cmd := &cobra.Command{
		Use: "show MODEL", Short: "Show what a model's chat template gets and writes",
		Long:    "Show what a model's chat template gets and writes, as chat-service found when it loaded the model: a few\nsmall conversations are rendered, and rendering follows what they show.",
		Example: `  whence models show qwen3-8b`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return cli.Misuse("one model is required, and %d are given\nRun '%s --help' to see the arguments.", len(args), cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := api.Validate(); err != nil {
				return err
			}
			var m listedModel
			if err := api.Get(cmd.Context(), "/v1/models/"+url.PathEscape(args[0]), &m); err != nil {
				return err
			}
			return m.print(cmd.OutOrStdout())
		},
	}
	cli.Attach(cmd, func(fs *flag.FlagSet) { api.Flags(fs) })
	return cmd
}

// print writes a line for each finding.
func (m *listedModel) print(out io.Writer) error {
	t := &m.Template
	efforts := "any"
	if t.Efforts != nil {
		efforts = joinWords(*t.Efforts, "none")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range [][2]string{
		{"model", m.ID},
		{"system texts are turns", joinWords(t.System, "nowhere: they join the first turn of the user")},
		{"developer texts are turns", joinWords(t.Developer, "as the system's")},
		{"offered tools", yesOrNo(t.Tools, "described by the template", "described in the turn of the system")},
		{"calls and results", yesOrNo(t.Calls, "in the template's form", "as text")},
		{"arguments", yesOrNo(t.TextArguments, "as text", "as an object")},
		{"content without a text", yesOrNo(t.NoContent, "none", "an empty text")},
		{"ids", map[string]string{"": "any", "nine": "nine letters and digits", "named": "functions.NAME:NUMBER"}[t.IDs]},
		{"calls in a turn", yesOrNo(t.OneCall, "one", "any number")},
		{"text beside calls", templatePlace(t.Text.Latest)},
		{"  before an answer", templatePlace(t.Text.Earlier)},
		{"  with reasoning", templatePlace(t.Text.Reasoned)},
		{"  with reasoning, before an answer", templatePlace(t.Text.EarlierReasoned)},
		{"reasoning", yesOrNo(t.Reasoning == "", "not written", "in the field "+t.Reasoning)},
		{"efforts", efforts},
		{"thinking off", joinWords(t.Switches, "not possible")},
		{"images", joinWords(t.Images, "nowhere")},
		{"format of calls", cmp.Or(t.ToolFormat, t.ToolProblem, "unknown")},
		{"tags of reasoning", cmp.Or(strings.Join(t.ReasoningTags, "…"), "unknown")},
		{"a call", yesOrNo(t.WrittenCall == "", "not written", strconv.Quote(t.WrittenCall))},
		{"a turn with reasoning", yesOrNo(t.WrittenReasoning == "", "not written", strconv.Quote(t.WrittenReasoning))},
	} {
		_, _ = fmt.Fprintln(w, line[0]+":\t"+printable.Line(line[1])) // Flush reports errors
	}
	return w.Flush()
}

func yesOrNo(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// templatePlace describes a place of a text.
func templatePlace(name string) string {
	switch name {
	case "":
		return "stays"
	case "turn":
		return "a turn before"
	case "user":
		return "a turn before, and an empty turn of the user"
	case "reasoning":
		return "joins the reasoning"
	default:
		return strings.ToLower(name) // of a newer api-service
	}
}

package command

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/printable"
)

// A listedModel is an element of GET /v1/models.
type listedModel struct {
	ID      string `json:"id"`
	Context int    `json:"context_length"`
	Workers struct {
		Healthy int `json:"healthy"`
		Known   int `json:"known"`
	} `json:"workers"`
	Template modelTemplate `json:"template"`
}

// A modelTemplate says what a model's chat template does with parts of conversations.
type modelTemplate struct {
	System    []string  `json:"system"`
	Developer []string  `json:"developer"`
	Calls     bool      `json:"calls"`
	Images    []string  `json:"images"`
	Efforts   *[]string `json:"efforts"` // nil if any is taken
	Switches  []string  `json:"switches"`

	Tools            bool       `json:"tools"`
	TextArguments    bool       `json:"text_arguments"`
	NoContent        bool       `json:"no_content"`
	IDs              string     `json:"ids"`
	Reasoning        string     `json:"reasoning"`
	OneCall          bool       `json:"one_call"`
	Text             modelTexts `json:"text"`
	WrittenCall      string     `json:"written_call"`
	WrittenReasoning string     `json:"written_reasoning"`

	ToolFormat    string   `json:"tool_format"`
	ToolProblem   string   `json:"tool_problem"`
	ReasoningTags []string `json:"reasoning_tags"`
}

// Models returns the command models.
func Models() *cobra.Command {
	var (
		api    remote
		asJSON bool
	)
	cmd := &cobra.Command{
		Use: "models [flags]", Short: "List models, and what their templates write",
		Long: "List the models of an api-service, and the places at which their chat templates write system and\ndeveloper texts as turns, whether they write tool calls, and in whose turns they place images.",
		Example: `  whence models
  whence models show qwen3-8b
  whence models --json | jq '.[].template'`,
		Args: cli.NoCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := api.Validate(); err != nil {
				return err
			}
			var list struct {
				Data []json.RawMessage `json:"data"`
			}
			if err := api.Get(cmd.Context(), "/v1/models", &list); err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(append([]json.RawMessage{}, list.Data...)) // [] rather than null
			}
			return writeModels(list.Data, cmd.OutOrStdout())
		},
	}
	cli.Attach(cmd, func(fs *flag.FlagSet) {
		api.Flags(fs)
		fs.BoolVar(&asJSON, "json", false, "print a JSON array")
	})
	cmd.AddCommand(modelsShow())
	return cmd
}

// writeModels writes a line for each model.
func writeModels(all []json.RawMessage, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "MODEL\tCONTEXT\tWORKERS\tSYSTEM\tDEVELOPER\tCALLS\tIMAGES\tEFFORTS\tTHINKING OFF") // Flush reports errors
	for _, raw := range all {
		var m listedModel
		if err := json.Unmarshal(raw, &m); err != nil {
			return fmt.Errorf("the list of models cannot be parsed: %w", err)
		}
		t := &m.Template
		calls, efforts := "as text", "any"
		if t.Calls {
			calls = "yes"
		}
		if t.Efforts != nil {
			efforts = joinWords(*t.Efforts, "none")
		}
		cells := []string{
			m.ID, strconv.Itoa(m.Context), fmt.Sprintf("%d of %d", m.Workers.Healthy, m.Workers.Known),
			joinWords(t.System, "as user"), joinWords(t.Developer, "as system"), calls, joinWords(t.Images, "-"), efforts, joinWords(t.Switches, "-"),
		}
		for i := range cells {
			cells[i] = printable.Line(cells[i])
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// joinWords joins words, or returns what an empty list means.
func joinWords(all []string, empty string) string {
	if len(all) == 0 {
		return empty
	}
	return strings.Join(all, ", ")
}

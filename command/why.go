package command

import (
	"encoding/json"
	"flag"
	"io"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/printable"
)

// Why returns the command why, which prints the history of a stream, hop by hop.
func Why() *cobra.Command {
	var (
		api    remote
		asJSON bool
	)
	cmd := &cobra.Command{
		Use: "why ID", Short: "Show why a stream ended, hop by hop",
		Long: "Show why a stream ended, or how far it has come: the record of each hop. The ID of a stream is the\nX-Request-Id of its response.",
		Example: `  whence why str-kpblupn7iwgk2edmz3wwo26a4l
  whence why my-request-id --json | jq .reason`,
		Args:              oneOrMore("a stream's ID", 1),
		ValidArgsFunction: completeLive(&api),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := api.Validate(); err != nil {
				return err
			}
			told, err := api.Story(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), told)
			}
			return told.Print(cmd.OutOrStdout())
		},
	}
	cli.Attach(cmd, func(fs *flag.FlagSet) {
		api.Flags(fs)
		fs.BoolVar(&asJSON, "json", false, "print the body of GET /v1/streams/ID")
	})
	return cmd
}

func writeJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// oneOrMore requires arguments, and at most limit of them; 0 means no limit.
func oneOrMore(what string, limit int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return cli.Misuse("%s is missing\nUsage: %s", what, cmd.UseLine())
		case limit > 0 && len(args) > limit:
			return cli.Misuse("unexpected argument %.64q\nUsage: %s", args[limit], cmd.UseLine())
		}
		return nil
	}
}

// completeLive completes the ids of live streams in a shell.
func completeLive(api *remote) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) (ids []cobra.Completion, _ cobra.ShellCompDirective) {
		if api.Validate() != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		live, err := api.Live(cmd.Context(), nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, s := range live {
			ids = append(ids, cobra.CompletionWithDesc(printable.Line(s.ID), printable.Line(s.Model)))
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

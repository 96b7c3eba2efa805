package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/internal/cli"
)

// Stop returns the command stop, which stops streams.
func Stop() *cobra.Command {
	var api remote
	cmd := &cobra.Command{
		Use: "stop ID ...", Short: "Stop streams",
		Long: "Stop streams, on whichever replica they run. A stopped stream ends with user_stop, or with operator_stop\nfor the operator's key, and its client gets this ending.",
		Example: `  whence stop str-kpblupn7iwgk2edmz3wwo26a4l
  whence streams --json | jq -r '.[].id' | xargs whence stop`,
		Args:              oneOrMore("a stream's ID", 0),
		ValidArgsFunction: completeLive(&api),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if err := api.Validate(); err != nil {
				return err
			}
			var all error
			for _, id := range ids {
				if err := api.Stop(cmd.Context(), id); err != nil {
					all = errors.Join(all, fmt.Errorf("%s: %w", id, err))
					continue
				}
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is stopping; whence why %s shows its ending\n", id, id); err != nil {
					return err
				}
			}
			return all
		},
	}
	cli.Attach(cmd, api.Flags)
	return cmd
}

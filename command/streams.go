package command

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/printable"
)

// Streams returns the command streams, which lists live or ended streams.
func Streams() *cobra.Command {
	var (
		api    remote
		s      streamSelection
		asJSON bool
	)
	cmd := &cobra.Command{
		Use: "streams [flags]", Short: "List live or ended streams",
		Long: "List the live streams of an api-service, oldest first, or with --ended the ended streams, newest\nfirst.",
		Example: `  whence streams
  whence streams --worker llm-worker/0
  whence streams --ended --reason peer_lost
  whence streams --ended --json | jq '.[].id'`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := api.Validate(); err != nil {
				return err
			}
			all, err := s.read(cmd.Context(), &api)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), append([]story.Story{}, all...)) // [] rather than null
			}
			if len(all) == 0 {
				_, err := fmt.Fprintln(cmd.ErrOrStderr(), s.none())
				return err
			}
			return writeStreams(all, cmd.OutOrStdout())
		},
	}
	cli.Attach(cmd, func(fs *flag.FlagSet) {
		api.Flags(fs)
		s.flags(fs)
		fs.BoolVar(&asJSON, "json", false, "print a JSON array")
	})
	return cmd
}

// A streamSelection selects the streams of a list.
type streamSelection struct {
	ended               bool
	reason, hop, worker string
	limit               int
}

func (s *streamSelection) flags(fs *flag.FlagSet) {
	fs.BoolVar(&s.ended, "ended", false, "list ended streams")
	fs.StringVar(&s.reason, "reason", "", "list only streams that ended with this `reason`, such as peer_lost")
	fs.StringVar(&s.hop, "hop", "", "list only streams whose ending crossed this `hop`, such as llm-worker/0")
	fs.StringVar(&s.worker, "worker", "", "list only streams that this `worker` has answered, such as llm-worker/0")
	fs.IntVar(&s.limit, "limit", story.DefaultLimit, fmt.Sprintf("maximum number of ended streams, 1 to %d", story.MaxLimit))
}

// none says that there is nothing to list.
func (s *streamSelection) none() string {
	switch {
	case !s.ended && s.worker != "":
		return fmt.Sprintf("no live streams on %s; whence streams --ended lists ended streams", printable.Line(s.worker))
	case !s.ended:
		return "no live streams; whence streams --ended lists ended streams"
	case s.reason != "" || s.hop != "" || s.worker != "":
		return "no ended streams match"
	default:
		return "no ended streams"
	}
}

func (s *streamSelection) read(ctx context.Context, api *remote) ([]story.Story, error) {
	query := url.Values{}
	if s.worker != "" {
		query.Set("worker", s.worker)
	}
	if !s.ended {
		if s.reason != "" || s.hop != "" {
			return nil, cli.Misuse("--reason and --hop select among ended streams; add --ended")
		}
		return api.Live(ctx, query)
	}
	if s.limit < 1 || s.limit > story.MaxLimit {
		return nil, cli.Misuse("--limit is %d; it must be 1 to %d", s.limit, story.MaxLimit)
	}
	query.Set("limit", strconv.Itoa(s.limit))
	if s.reason != "" {
		query.Set("reason", s.reason)
	}
	if s.hop != "" {
		query.Set("hop", s.hop)
	}
	return api.Ended(ctx, query)
}

// writeStreams prints one line for each stream. The lines have the record of one hop, the
// api-service that was called.
func writeStreams(all []story.Story, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STREAM\tMODEL\tAGE\tSTATE\tTOKENS\tPEER") //nolint:errcheck // Flush returns the error
	for i := range all {
		s := &all[i]
		model := s.Model
		if model == "" {
			model = "-" // not admitted yet
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%d\t%s\n", //nolint:errcheck // likewise
			printable.Line(s.ID), printable.Line(model), streamAge(s), printable.Line(streamState(s)), s.Tokens.Delivered, printable.Line(s.Hops[0].Peer))
	}
	return w.Flush()
}

// streamAge returns how long the stream has run.
func streamAge(s *story.Story) time.Duration {
	return time.Duration(s.Hops[0].TookMS * float64(time.Millisecond)).Round(100 * time.Millisecond)
}

// streamState returns the state of a live stream, and who ended an ended stream and why.
func streamState(s *story.Story) string {
	switch {
	case s.Reason == "":
		return s.State
	case s.State == "ended":
		return s.Reason + " by " + s.Origin
	default:
		return s.State + ", " + s.Reason
	}
}

package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/printable"
)

// Top returns the command top: a screen of the streams, latencies, endings and workers of an
// api-service, or the same figures once, for scripts.
func Top() *cobra.Command {
	var (
		api   remote
		every time.Duration
		once  bool
	)
	cmd := &cobra.Command{
		Use: "top [flags]", Short: "Watch streams, latencies, endings and workers",
		Long: "Watch an api-service: live and ended streams, rates, percentiles of latencies, endings, and workers.\nIf the api-service restarts, top waits for it. Without a terminal, top prints the figures once, and\nwith --every again and again. With --once, top prints them once.\n\nKeys: " + keysHelp,
		Example: `  whence top
  whence top --url https://llm.example --operator-key "$KEY"
  whence top --once | grep llm-worker`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := api.Validate(); err != nil {
				return err
			}
			if every <= 0 {
				return cli.Misuse("--every is %v; it must be over 0", every)
			}
			ctx, cancel := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer cancel()
			first := takeSample(ctx, &api)
			if first.err != nil {
				return first.err
			}
			to := screenOf(cmd.OutOrStdout())
			switch {
			case !once && to.Terminal():
				return watchTop(ctx, &api, every, newBoard(api.URL, to, first), cmd.OutOrStdout())
			case !once && cmd.Flags().Changed("every"):
				return printEach(ctx, &api, every, &first, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return printSample(cmd.OutOrStdout(), api.URL, &first)
		},
	}
	cli.Attach(cmd, func(fs *flag.FlagSet) {
		api.Flags(fs)
		fs.DurationVar(&every, "every", time.Second, "time between two updates; without a terminal, --every on the command line repeats the figures")
		fs.BoolVar(&once, "once", false, "print the figures once, for scripts")
	})
	return cmd
}

// maxEnded is the number of ended streams that figures are computed from.
const maxEnded = 500

// A topSample is one look at an api-service.
type topSample struct {
	at      time.Time
	live    []story.Story // oldest first
	ended   []story.Story // newest first
	workers []story.Worker
	refusal error // why there are no workers: a key without the right to see them
	err     error // why there is nothing
}

func takeSample(ctx context.Context, api *remote) (s topSample) {
	if s.live, s.err = api.Live(ctx, nil); s.err == nil {
		s.ended, s.err = api.Ended(ctx, limitQuery(maxEnded))
	}
	s.workers, s.refusal = api.Workers(ctx)
	s.at = time.Now()
	return s
}

// printSample prints a sample for scripts: without colours, and with whole ids.
func printSample(out io.Writer, url string, s *topSample) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %d live at %s\n\n", s.at.Format(time.TimeOnly), len(s.live), url)
	figures := newFigures(s)
	for _, line := range figures.latencies() {
		fmt.Fprintln(&b, line)
	}
	for _, e := range figures.endings {
		fmt.Fprintf(&b, "ended        %d %s by %s\n", e.count, printable.Line(e.reason), printable.Line(e.origin))
	}
	for i := range s.workers {
		w := &s.workers[i]
		fmt.Fprintf(&b, "worker       %s %s, %d streams, %d/%d running, %d/%d queued, %s of KV cache%s%s\n",
			printable.Line(w.Name), printable.Line(w.State), w.Streams, w.Running, w.MaxRunning, w.Queued, w.MaxQueued, kvUse(w), messageSuffix(printable.Line(w.Server)), messageSuffix(printable.Line(w.Message)))
	}
	if s.refusal != nil {
		fmt.Fprintf(&b, "workers      are not shown: %s\n", printable.Line(s.refusal.Error()))
	}
	b.WriteByte('\n')
	if err := writeStreams(s.live, &b); err != nil {
		return err
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func messageSuffix(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// kvUse returns the used part of a worker's KV cache.
func kvUse(w *story.Worker) string {
	if w.KVTotalTokens == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", 100*w.KVUsedTokens/w.KVTotalTokens)
}

// watchTop shows samples on a terminal until ctx is done or the user quits.
func watchTop(ctx context.Context, api *remote, every time.Duration, b *board, out io.Writer) error {
	keys, restore, err := readKeys(os.Stdin)
	if err != nil {
		return err
	}
	defer restore()
	if _, err := io.WriteString(out, enterScreen); err != nil {
		return err
	}
	defer io.WriteString(out, leaveScreen) //nolint:errcheck // the terminal is gone
	return topLoop(ctx, api, every, b, out, keys)
}

// topLoop shows the board, and after each event the changed board.
func topLoop(ctx context.Context, api *remote, every time.Duration, b *board, out io.Writer, keys <-chan key) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	samples := make(chan topSample)
	running.Go(func() { pollSamples(ctx, api, every, samples) })
	results := make(chan func(*board), 1) // one request runs at a time
	for {
		if _, err := io.WriteString(out, b.frame()); err != nil {
			return err
		}
		select {
		case s := <-samples:
			b.add(s)
		case show := <-results:
			b.take(show)
		case k, ok := <-keys:
			if !ok {
				keys = nil // the input has ended; signals still end top
				continue
			}
			ask, quit := b.press(k)
			if quit {
				return nil
			}
			if ask != nil {
				running.Go(func() { results <- ask(ctx, api) })
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// printEach prints samples until ctx is done. While the api-service is away, printEach reports that
// and continues.
func printEach(ctx context.Context, api *remote, every time.Duration, first *topSample, out, errs io.Writer) error {
	if err := printSample(out, api.URL, first); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	samples := make(chan topSample)
	running.Go(func() { pollSamples(ctx, api, every, samples) })
	for {
		select {
		case s := <-samples:
			if s.err != nil {
				_, _ = fmt.Fprintln(errs, "retrying:", printable.Line(firstLine(s.err))) // the next sample is printed all the same
				continue
			}
			if err := printSample(out, api.URL, &s); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// pollSamples takes a sample each interval until ctx is done.
func pollSamples(ctx context.Context, api *remote, every time.Duration, samples chan<- topSample) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s := takeSample(ctx, api)
		if errors.Is(ctx.Err(), context.Canceled) {
			return
		}
		select {
		case samples <- s:
		case <-ctx.Done():
			return
		}
	}
}

// Command trust injects faults into separate processes under load, and compares what each fault
// costs with its published bound.
//
//	trust [--streams N] [--only ROW] [--docs FILE] [--bin DIRECTORY] [--held DURATION]
//
// Run it with scripts/trust. Each row starts its own services: api-service, chat-service and
// workers with a simulated engine, whose answers are deterministic, so that the text of a moved
// stream can be compared with the undisturbed text. The row fills the services with streams,
// injects the fault, and follows every stream to its end. The command fails if a row misses a
// bound.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// options of a run.
type options struct {
	streams int
	only    string
	docs    string
	bin     string
	held    time.Duration
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	fs := flag.NewFlagSet("trust", flag.ContinueOnError)
	fs.IntVar(&o.streams, "streams", 500, "number of `streams` that run when a fault is injected")
	fs.StringVar(&o.only, "only", "", "run only the rows whose names `contain` this")
	fs.StringVar(&o.docs, "docs", "", "`file` whose section between the markers gets the table")
	fs.DurationVar(&o.held, "held", 10*time.Minute, "`duration` of the row that holds idle and live streams")
	fs.StringVar(&o.bin, "bin", "", "`directory` with api-service, chat-service, llm-worker and victim; empty builds those of this checkout")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.streams < 1 {
		return fmt.Errorf("--streams is %d; it must be at least 1", o.streams)
	}
	if _, err := lab.RaiseFileLimit(); err != nil {
		return err
	}
	b, err := trial.Build(ctx, o.bin)
	if err != nil {
		return err
	}
	defer b.Close()
	all, failed := play(ctx, b, &o)
	if err := report.Print(out, all); err != nil {
		return errors.Join(failed, err)
	}
	if err = failed; err == nil && o.docs != "" {
		title := fmt.Sprintf("%d streams of %d tokens a second each, %d cores, commit %s, %s:", o.streams, trial.Pace, runtime.NumCPU(), b.Commit, time.Now().UTC().Format(time.DateOnly))
		err = report.Publish(o.docs, title, all)
	}
	for _, f := range all {
		if !f.Within() {
			err = errors.Join(err, fmt.Errorf("%s: %s is %s, over the bound of %s", f.Row, f.What, f.Said(f.Got), f.Said(f.Bound)))
		}
	}
	return err
}

// play runs the selected rows, one after another.
func play(ctx context.Context, b *trial.Builds, o *options) (all []trial.Finding, failed error) {
	played := 0
	for _, r := range rows {
		if !strings.Contains(r.Name, o.only) {
			continue
		}
		fmt.Fprintln(os.Stderr, r.Name)
		found, err := trial.New(b, o.streams, o.held, r).Run(ctx)
		played++
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.Name, err)) // further rows may have figures
		}
		all = append(all, found...)
	}
	if played == 0 {
		return nil, fmt.Errorf("no row has %q in its name", o.only)
	}
	return all, failed
}

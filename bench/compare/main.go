// Command compare measures the cost of a streamed token on Whence, on other proxies and without a
// proxy, in one run on one machine.
//
//	compare [--quick] [--only SCENARIO] [--against DIR] [--peers DIR] [--json FILE] [--docs FILE] [--ratios FILE]
//
// Run it with scripts/bench compare. Systems take turns within each round, so that a change of the
// machine affects all of them; each figure is the median of the rounds. The command also runs the
// engine and the relay of the comparison, in processes of their own: compare engine, compare relay,
// compare edge.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 3 {
		switch args[0] {
		case "engine":
			return serveEngine(args[1], args[2])
		case "relay":
			return serveRelay(args[1], args[2])
		case "edge":
			return serveEdge(args[1], args[2])
		}
	}
	var o options
	fs := flag.NewFlagSet("compare", flag.ContinueOnError)
	fs.BoolVar(&o.quick, "quick", false, "fewer scenarios, rounds and seconds: about two minutes on an idle machine")
	fs.StringVar(&o.only, "only", "", "`scenarios` to run, separated by commas; a name, or the beginning of names")
	fs.StringVar(&o.systems, "systems", "", "`systems` to compare, separated by commas, like --only; direct and the Whence of --against are always included")
	fs.StringVar(&o.against, "against", "", "`directory` of another checkout whose Whence is compared, too")
	fs.StringVar(&o.peers, "peers", "", "`directory` of peers that scripts/bench compare --peers installs: they are compared in front of a server with OpenAI's API, with scenarios of their own")
	fs.IntVar(&o.rounds, "rounds", 0, "rounds of each scenario; 0 for five, or three with --quick")
	fs.DurationVar(&o.window, "window", 0, "duration of the measurement in each round; 0 for five seconds, or half a second with --quick")
	fs.StringVar(&o.profiles, "profiles", "", "`directory` for CPU profiles of Whence, and for its heap and goroutine profiles in scenarios that measure memory, whose heaps and stacks per stream are printed, too; profiling costs a few percent")
	fs.StringVar(&o.json, "json", "", "`file` for all measurements")
	fs.StringVar(&o.docs, "docs", "", "`file` whose section between the markers gets the tables")
	fs.StringVar(&o.ratios, "ratios", "", "`file` whose section between the markers gets the table of ratios, and the plot")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	chosen, err := o.scenarios()
	if err != nil {
		return err
	}
	b, err := newBench(&o, chosen)
	if err != nil {
		return err
	}
	defer b.close()
	report, err := b.compare(ctx, chosen)
	if err != nil {
		return err
	}
	return report.publish(&o, out)
}

// options of a comparison.
type options struct {
	quick                  bool
	only, systems, against string
	peers                  string
	rounds                 int
	window                 time.Duration
	json, docs, ratios     string
	profiles               string
}

// scenarios returns the selected scenarios.
func (o *options) scenarios() ([]scenario, error) {
	all := scenarios()
	if o.peers != "" {
		all = peerScenarios()
	} else if o.quick && o.only == "" {
		return slices.DeleteFunc(all, func(s scenario) bool { return !slices.Contains(quick, s.name) }), nil
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(s scenario) bool { return !named(o.only, s.name) })
	if len(chosen) == 0 {
		names := make([]string, len(all))
		for i, s := range all {
			names[i] = s.name
		}
		return nil, fmt.Errorf("--only %q matches no scenario; the scenarios are: %s", o.only, strings.Join(names, "; "))
	}
	return chosen, nil
}

// named reports whether a comma-separated list is empty, or contains name or a prefix of it.
func named(list, name string) bool {
	if list == "" || list == name {
		return true
	}
	for one := range strings.SplitSeq(list, ",") {
		if strings.HasPrefix(strings.ToLower(name), strings.ToLower(strings.TrimSpace(one))) {
			return true
		}
	}
	return false
}

// compares reports whether the system with this name is compared.
func (o *options) compares(name string) bool {
	return name == directName || name == otherName || named(o.systems, name)
}

func (o *options) times() (rounds int, window time.Duration) {
	rounds, window = 5, 5*time.Second
	if o.quick {
		rounds, window = 3, 500*time.Millisecond
	}
	if o.rounds > 0 {
		rounds = o.rounds
	}
	if o.window > 0 {
		window = o.window
	}
	return rounds, window
}

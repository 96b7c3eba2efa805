// Command gpu plays Whence against the model servers of a machine with a GPU: vLLM and SGLang, if they
// are installed there.
//
//	gpu --model DIR [--engines vllm,sglang] [--rows ROW] [--rounds N] [--docs FILE]
//
// Run it with scripts/gpu. The rows are the endings of streams and what every hop reports of them, the
// work that a server does for an abandoned stream, streams that move to another server, with and
// without batch invariance, and routing by the servers' KV caches. The command prints a table, and fails
// if a stream has the wrong ending. It fails as well if neither server is installed. Its test plays all
// rows against a fake of both servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/report"
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
	model   string // a Hugging Face directory
	engines string // names, separated by commas
	only    string
	rounds  int
	extra   string // further arguments of the servers
	start   time.Duration
	docs    string
}

func parse(args []string) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("gpu", flag.ContinueOnError)
	fs.StringVar(&o.model, "model", "", "Hugging Face `directory` of the model, with its weights")
	fs.StringVar(&o.engines, "engines", "vllm,sglang", "`names` of the servers to play, separated by commas; those that are not installed are left out")
	fs.StringVar(&o.only, "rows", "", "run only the rows whose names `contain` this: endings, stops, moves, cache")
	fs.IntVar(&o.rounds, "rounds", 20, "`number` of streams that a row measures")
	fs.StringVar(&o.extra, "server-args", "", "further `arguments` of the servers, separated by spaces, such as --max-model-len 8192")
	fs.DurationVar(&o.start, "start-timeout", 15*time.Minute, "`time` in which a server must be ready")
	fs.StringVar(&o.docs, "docs", "", "`file` whose section between the markers gets the table")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.model == "":
		return nil, errors.New("--model is missing; it names the Hugging Face directory of the model")
	case o.rounds < 1:
		return nil, fmt.Errorf("--rounds is %d; it must be at least 1", o.rounds)
	}
	return o, nil
}

// A row plays one subject against one make of server, and returns its figures.
type row struct {
	name string
	play func(ctx context.Context, s *stand) ([]figure, error)
}

var rows = []row{{"endings", endings}, {"stops", stops}, {"moves", moves}, {"cache", cache}}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	makes, err := installed(ctx, strings.Split(o.engines, ","))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "whence-gpu-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder for temporary files
	if err := lab.Build(ctx, "", dir, nil, lab.APIService, lab.ChatService, lab.LLMWorker); err != nil {
		return err
	}
	var all []figure
	var titles []string
	for _, m := range makes {
		titles = append(titles, m.name+" "+m.version)
		found, err := playAll(ctx, dir, m, o)
		all = append(all, found...)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", m.name, err), printTable(out, all))
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("no row has %q in its name", o.only)
	}
	if err := printTable(out, all); err != nil || o.docs == "" {
		return err
	}
	title := fmt.Sprintf("%s, %s, %s, %s:", strings.Join(titles, ", "), filepath.Base(o.model), gpuName(ctx), time.Now().UTC().Format(time.DateOnly))
	return report.Replace(o.docs, "gpu", title+"\n\n"+markdown(all))
}

// playAll plays the selected rows against one make of server.
func playAll(ctx context.Context, dir string, m *serverMake, o *options) (all []figure, err error) {
	for _, r := range rows {
		if !strings.Contains(r.name, o.only) {
			continue
		}
		fmt.Fprintln(os.Stderr, m.name+": "+r.name)
		s := &stand{dir: dir, server: m, opts: o, gpus: gpus(ctx)}
		found, err := r.play(ctx, s)
		s.end()
		if err != nil {
			return all, fmt.Errorf("%s: %w", r.name, err)
		}
		for i := range found {
			found[i].server, found[i].row = m.name, r.name
		}
		all = append(all, found...)
	}
	return all, nil
}

// A figure is one measured figure.
type figure struct{ server, row, what, value string }

// count returns a figure that says how many of some things are so.
func count(what string, n, of int) figure {
	return figure{what: what, value: fmt.Sprintf("%d of %d", n, of)}
}

// spread returns a figure with the median and the largest of some numbers.
func spread(what, unit string, all []float64) figure {
	if len(all) == 0 {
		return figure{what: what, value: "-"}
	}
	slices.Sort(all)
	return figure{what: what, value: fmt.Sprintf("%.1f %s, at most %.1f", all[len(all)/2], unit, all[len(all)-1])}
}

func printTable(out io.Writer, all []figure) error {
	_, err := io.WriteString(out, markdown(all))
	return err
}

// markdown returns the table for bench/engines.md.
func markdown(all []figure) string {
	var b strings.Builder
	b.WriteString("| server | row | figure | measured |\n|---|---|---|---|\n")
	for _, f := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.server, f.row, f.what, f.value)
	}
	return b.String()
}

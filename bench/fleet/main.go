// Command fleet compares routing policies on a fleet of simulated workers over loopback, and prints
// tables.
//
//	fleet routing [FLAGS]
//	fleet handover [FLAGS]
//
// All policies get the same load, one after another in one run, each on workers with empty caches.
// Only the engines are simulated: chat-service's pool, gRPC and the workers are real. Times are
// those of the simulated machines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] != "routing" && args[0] != "handover" {
		return errors.New("usage: fleet routing|handover [FLAGS]")
	}
	fs := flag.NewFlagSet("fleet "+args[0], flag.ExitOnError)
	c := options{out: os.Stdout}
	apart := args[0] == "handover"
	rate, requests, prefill := 28.0, 600, 0
	if apart {
		rate, requests = 8, 300
		fs.IntVar(&prefill, "prefill", 3, "workers that read prompts for the others")
	}
	fs.IntVar(&c.workers, "workers", 8, "simulated workers")
	fs.IntVar(&c.kvTokens, "kv-tokens", 64<<10, "size of each worker's KV cache")
	fs.Float64Var(&c.slow, "slow", 2, "factor between real and simulated time; a larger one reduces the influence of this machine")
	fs.IntVar(&c.requests, "requests", requests, "requests of each load")
	fs.Float64Var(&c.rate, "rate", rate, "requests a second, in simulated time")
	fs.Uint64Var(&c.seed, "seed", 1, "seed of the loads")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	if apart {
		if prefill < 1 || prefill >= c.workers {
			return fmt.Errorf("--prefill is %d; it must leave at least one of %d workers for answers", prefill, c.workers)
		}
		return c.handover(ctx, prefill)
	}
	c.warming = c.requests / 3
	return c.run(ctx)
}

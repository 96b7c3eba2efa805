package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
)

// Main is the main function of a service that listens on one address. flags adds the service's
// flags; run serves until its context is done. Main does not return: the status is 0 after a drain
// or --help, 1 if run failed, 2 if the configuration is wrong, and 130 after a second signal, which
// ends all streams at once.
func Main(name, listen string, flags func(*flag.FlagSet), run func(context.Context, net.Listener, *slog.Logger) error) {
	Subcommand(name, os.Args[1:], listen, flags, run)
}

// Subcommand is Main for a service that is a subcommand, with args behind the subcommand's name.
func Subcommand(name string, args []string, listen string, flags func(*flag.FlagSet), run func(context.Context, net.Listener, *slog.Logger) error) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	var l Log
	addr := fs.String("listen", listen, "`host:port` to listen on; port 0 takes any")
	l.Flags(fs)
	flags(fs)
	if err := Parse(fs, args, os.Stdout); err != nil {
		Exit(name, err)
	}
	log := l.Logger(os.Stderr)
	ctx, stop := Signals(log)
	defer stop()
	ln, err := net.Listen("tcp", *addr)
	if err != nil {
		Exit(name, err)
	}
	log.Info("listening", "addr", ln.Addr().String())
	if err := run(ctx, ln, log); err != nil {
		log.Error("failed", "err", err)
		os.Exit(1) //nolint:gocritic // stop only frees what the process holds
	}
	log.Info("stopped")
	if hurried(ctx) {
		os.Exit(exitHurried)
	}
	os.Exit(0)
}

// Exit ends the process: with status 0 if err is nil or flag.ErrHelp, otherwise with 2 and err on
// standard error.
func Exit(name string, err error) {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	os.Exit(2)
}

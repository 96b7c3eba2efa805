package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/whence-dev/whence/internal/flags"
	"github.com/whence-dev/whence/internal/observe"
	"github.com/whence-dev/whence/internal/process"
)

// A Service is a command that serves on one address until a signal arrives.
type Service struct {
	Name   string // in metrics and traces
	Listen string // default of --listen
	Flags  func(*flag.FlagSet)
	// Check reports what is wrong with the configuration. It runs before a port is opened.
	Check func() error
	// LibraryLog sends the log lines of the service's libraries to a writer; nil if there are none.
	LibraryLog func(io.Writer)
	// Pages reports whether Run serves the pages of its metrics on a listener of its own; nil means
	// that it does not.
	Pages func() bool
	// Measured reports whether Run itself needs the metrics; nil means that it does not.
	Measured func() bool
	// Run serves until ctx is done and the streams have drained.
	Run func(ctx context.Context, ln net.Listener, log *slog.Logger, out observe.Outputs) error
}

// Attach makes cmd run the service. The status is 0 after a drain, and 130 after a second signal,
// which ends all streams at once.
func (s *Service) Attach(cmd *cobra.Command) {
	var (
		addr    string
		l       process.Log
		watched observe.Config
	)
	if cmd.Args == nil {
		cmd.Args = NoArguments
	}
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := s.Check(); err != nil {
			return &configError{err}
		}
		watched.Metrics.Elsewhere = s.Pages != nil && s.Pages()
		watched.Metrics.Measured = s.Measured != nil && s.Measured()
		if err := watched.Validate(); err != nil {
			return &configError{err}
		}
		return s.serve(addr, &l, &watched)
	}
	attach(cmd, newSettings(func(fs *flag.FlagSet) {
		fs.StringVar(&addr, "listen", s.Listen, "`host:port` to listen on; port 0 takes any free port")
		flags.Group(fs, flags.Connections)
		l.Flags(fs)
		flags.Group(fs, flags.Observability)
		s.Flags(fs)
		watched.Flags(fs)
	}, true))
}

func (s *Service) serve(addr string, l *process.Log, watched *observe.Config) error {
	log := l.Logger(os.Stderr)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return &configError{fmt.Errorf("--listen: %w", err)}
	}
	ctx, stop := process.Signals(log)
	defer stop()
	log.Info("listening", "addr", ln.Addr().String())
	if s.LibraryLog != nil {
		s.LibraryLog(process.Lines(log, "cloudwego"))
	}
	err = watched.Run(s.Name, log, func(out observe.Outputs) error {
		if !l.JSON && l.Level <= slog.LevelInfo && term.IsTerminal(int(os.Stderr.Fd())) { //nolint:gosec // a descriptor is small
			out.Progress = os.Stderr
		}
		return s.Run(ctx, ln, log, out)
	})
	if err != nil {
		log.Error("failed", "err", err)
		return Failed()
	}
	log.Info("stopped")
	if process.Hurried(ctx) {
		return Interrupted()
	}
	return nil
}

// Main runs the service as a program of its own, with the name and the description of cmd, and does
// not return.
func (s *Service) Main(cmd *cobra.Command) {
	s.Attach(cmd)
	Main(cmd)
}

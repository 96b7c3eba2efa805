package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"

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
	// Ports returns the service's ports besides that of --listen; nil means that there are none. All
	// ports are open before Run, or none.
	Ports func() []Port
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

// A Port is an address that a service listens on.
type Port struct {
	Flag    string // of the address, without dashes
	Address string
	Open    *net.Listener // is set before Run
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
	var ln net.Listener
	ports := []Port{{"listen", addr, &ln}}
	if s.Ports != nil {
		ports = append(ports, s.Ports()...)
	}
	if err := open(ports); err != nil {
		return &configError{err}
	}
	ctx, stop := process.Signals(log)
	defer stop()
	log.Info("listening", "addr", ln.Addr().String())
	if s.LibraryLog != nil {
		s.LibraryLog(process.Lines(log, "cloudwego"))
	}
	err := watched.Run(s.Name, log, func(out observe.Outputs) error {
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

// open opens all ports. If it cannot, it opens none, and the error names each port that is not free,
// and the flags that take free ones.
func open(ports []Port) error {
	var wrong []error
	taken := false
	var free []string
	for _, p := range ports {
		ln, err := net.Listen("tcp", p.Address)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("--%s: %w", p.Flag, err))
			taken = taken || errors.Is(err, syscall.EADDRINUSE)
			free = append(free, "--"+p.Flag+" 127.0.0.1:0")
			continue
		}
		*p.Open = ln
	}
	if len(wrong) == 0 {
		return nil
	}
	for _, p := range ports {
		if *p.Open != nil {
			_ = (*p.Open).Close() // nobody has connected
		}
	}
	if taken {
		wrong = append(wrong, errors.New("another process, perhaps another whence, listens there; these flags take any free ports: "+strings.Join(free, " ")))
	}
	return errors.Join(wrong...)
}

// Main runs the service as a program of its own, with the name and the description of cmd, and does
// not return.
func (s *Service) Main(cmd *cobra.Command) {
	s.Attach(cmd)
	Main(cmd)
}

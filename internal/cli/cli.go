// Package cli turns the parts of Whence into commands: flags from the command line, the environment
// and a YAML file; help grouped by subject; errors that name a value, its source and what was
// expected; and exit statuses.
//
// A command exits with status 0 if it did what it was asked to, with 1 if that failed, with 2 if the
// command line or the configuration is wrong, and with 130 if a signal cut it short. A service checks
// its whole configuration before it opens a port.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/internal/printable"
	"github.com/whence-dev/whence/internal/process"
)

// Exit statuses.
const (
	failed      = 1
	misused     = 2
	interrupted = process.StatusInterrupted
)

// An ExitError ends a command with a status and, if Err is not nil, with a message.
type ExitError struct {
	Status int
	Err    error
}

// Error implements error.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// Misuse returns an error about the command line or the configuration.
func Misuse(format string, args ...any) error {
	return &ExitError{misused, fmt.Errorf(format, args...)}
}

// Interrupted returns the error of a command that a signal cut short. It prints nothing.
func Interrupted() error { return &ExitError{Status: interrupted} }

// Failed returns the error of a command that has reported already why it failed. It prints nothing.
func Failed() error { return &ExitError{Status: failed} }

// Attach declares flags for cmd. Before cmd runs or completes its arguments, they are set from the
// command line, the environment and the file of --config. Attach also sets the help of cmd and the
// texts of its errors. The environment does not name the file: WHENCE_CONFIG is a service's.
func Attach(cmd *cobra.Command, declare func(*flag.FlagSet)) {
	attach(cmd, newSettings(declare, false))
}

func attach(cmd *cobra.Command, s *settings) {
	cobra.EnableCommandSorting = false // the help lists commands in their order
	cmd.Flags().AddGoFlagSet(s.flags)
	cmd.SetFlagErrorFunc(func(at *cobra.Command, err error) error {
		if at == cmd { // cobra also asks for the errors of commands below cmd
			err = s.flagError(err)
		}
		return &ExitError{misused, err}
	})
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.load(cmd.Flags()); err != nil {
			return &ExitError{misused, err}
		}
		return nil
	}
	if complete := cmd.ValidArgsFunction; complete != nil {
		cmd.ValidArgsFunction = s.completion(complete)
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return s.explain(run(cmd, args)) }
	cmd.SetHelpFunc(func(at *cobra.Command, _ []string) {
		if at == cmd {
			writeHelp(at.OutOrStdout(), at, s.flags)
		} else {
			writeHelp(at.OutOrStdout(), at, nil)
		}
	})
}

// completionTimeout bounds the completion of an argument, for which the user's shell waits.
const completionTimeout = time.Second

// completion returns a completion that has the values of the flags, and little time.
func (s *settings) completion(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if err := s.load(cmd.Flags()); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		cmd.SetContext(ctx)
		return complete(cmd, args, start)
	}
}

// Subcommands makes cmd, which does nothing by itself, a list of commands.
func Subcommands(cmd *cobra.Command, commands ...*cobra.Command) {
	cmd.AddCommand(commands...)
	cmd.Args = NoCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return Misuse("a command is missing\nRun '%s --help' to see the commands.", cmd.CommandPath())
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(cmd.OutOrStdout(), cmd, nil) })
}

// NoCommand refuses arguments of a command that has other commands: they are misspelt commands.
func NoCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Misuse("there is no command %.64q%s\nRun '%s --help' to see the commands.", args[0], didYouMean(nearCommands(cmd, args[0])), cmd.CommandPath())
}

// nearCommands returns the commands below cmd that a misspelt name may mean. Of a short name, any other
// is near, unless it has the same letters.
func nearCommands(cmd *cobra.Command, name string) []string {
	letters := func(s string) string { return string(slices.Sorted(slices.Values([]byte(s)))) }
	cmd.SuggestionsMinimumDistance = min(maxDistance, max(1, len(name)/3))
	near := cmd.SuggestionsFor(name)
	cmd.SuggestionsMinimumDistance = maxDistance
	for _, s := range cmd.SuggestionsFor(name) {
		if letters(s) == letters(name) && !slices.Contains(near, s) {
			near = append(near, s)
		}
	}
	return near
}

// NoArguments refuses all arguments.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Misuse("unexpected argument %.64q\nRun '%s --help' to see the flags.", args[0], cmd.CommandPath())
}

// Main runs the command that the process was started with, and does not return.
func Main(root *cobra.Command) {
	os.Exit(Execute(context.Background(), root, os.Args[1:], os.Stdout, os.Stderr))
}

// Execute runs root with args. It returns the exit status.
func Execute(ctx context.Context, root *cobra.Command, args []string, out, errs io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	root.Version = Version()
	root.SetVersionTemplate("{{.DisplayName}} {{.Version}}\n")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Hidden = true
		case "completion":
			c.Short = "Print the completion script of a shell"
			c.RunE = func(c *cobra.Command, _ []string) error {
				return Misuse("name a shell: bash, fish, powershell or zsh\nRun '%s --help' to see the commands.", c.CommandPath())
			}
			c.Args = NoCommand
		}
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	status := failed
	var exit *ExitError
	if errors.As(err, &exit) {
		if exit.Err == nil {
			return exit.Status
		}
		status = exit.Status
	}
	_, _ = fmt.Fprintf(errs, "%s: %s\n", cmd.CommandPath(), printable.Text(err.Error())) // if that fails, the status remains
	return status
}

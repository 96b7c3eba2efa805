package cli

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/whence-dev/whence/internal/flags"
)

const (
	flagColumn = 30 // where the texts of flags begin
	minWidth   = 70
	maxWidth   = 100
)

// widthOf returns the width of help on w, in columns: that of the terminal, within limits.
func widthOf(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return min(max(width, minWidth), maxWidth)
		}
	}
	return maxWidth
}

// writeHelp writes the help of a command: its commands, or its flags by subject.
func writeHelp(w io.Writer, cmd *cobra.Command, fs *flag.FlagSet) {
	var b strings.Builder
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	usage := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		usage = cmd.CommandPath() + " [COMMAND] [flags]"
	}
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n", text, usage)
	if cmd.Example != "" && !cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		writeCommands(&b, cmd)
	} else if fs != nil {
		writeFlags(&b, fs, widthOf(w))
	} else if own := cmd.LocalFlags().FlagUsages(); own != "" { // of a command that cobra provides
		fmt.Fprintf(&b, "\nFlags:\n%s", own)
	}
	_, _ = io.WriteString(w, b.String()) // an error here could only be reported to the same place
}

// writeCommands writes the commands of cmd by group, and then its examples.
func writeCommands(b *strings.Builder, cmd *cobra.Command) {
	groups := cmd.Groups()
	if len(groups) == 0 {
		groups = []*cobra.Group{{Title: "Commands"}}
	}
	for _, g := range groups {
		fmt.Fprintf(b, "\n%s:\n", g.Title)
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.GroupID == g.ID {
				fmt.Fprintf(b, "  %-12s%s\n", c.Name(), c.Short)
			}
		}
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n%s\n", cmd.Example)
	}
	fmt.Fprintf(b, "\nRun '%s COMMAND --help' for the flags of a command.\n", cmd.CommandPath())
}

// writeFlags writes the flags of fs by subject.
func writeFlags(b *strings.Builder, fs *flag.FlagSet, width int) {
	for _, subject := range flags.Subjects() {
		first := true
		fs.VisitAll(func(f *flag.Flag) {
			if flags.SubjectOf(f) != subject {
				return
			}
			if first {
				fmt.Fprintf(b, "\n%s:\n", subject)
				first = false
			}
			writeFlag(b, f, width)
		})
	}
	b.WriteString("\n" + strings.Join(wrap(sourcesHelp(fs), width), "\n") + "\n")
}

// sourcesHelp says where else the flags of fs can be set.
func sourcesHelp(fs *flag.FlagSet) string {
	var not []string
	fs.VisitAll(func(f *flag.Flag) {
		if !flags.InEnvironment(f) {
			not = append(not, "--"+f.Name)
		}
	})
	except := ""
	if len(not) > 0 {
		except = ", except for " + strings.Join(not, ", ") + ","
	}
	return "Each flag can also be set in the environment (--listen is WHENCE_LISTEN)" + except + " and in the YAML file of --config (listen: 127.0.0.1:8080). " +
		"The command line overrides the environment, which overrides the file."
}

func writeFlag(b *strings.Builder, f *flag.Flag, width int) {
	argument, usage := flags.Unquote(f)
	name := "  --" + f.Name
	if argument != "" {
		name += " " + argument
	}
	if value := Default(f); value != "" {
		usage += " (default " + value + ")"
	}
	lines := wrap(usage, width-flagColumn)
	if len(name) > flagColumn-2 {
		fmt.Fprintf(b, "%s\n", name)
		name = ""
	}
	for _, line := range lines {
		fmt.Fprintf(b, "%-*s%s\n", flagColumn, name, line)
		name = ""
	}
}

// Default returns the default value of f, or "" if it is the zero value.
func Default(f *flag.Flag) string {
	switch f.DefValue {
	case "false", "0", "0s":
		return ""
	}
	return shorten(f.DefValue)
}

// shorten writes a duration as people do: 1h0m0s is 1h. Other values stay as they are.
func shorten(value string) string {
	if _, err := time.ParseDuration(value); err != nil {
		return value
	}
	if strings.HasSuffix(value, "m0s") {
		value = strings.TrimSuffix(value, "0s")
	}
	if strings.HasSuffix(value, "h0m") {
		value = strings.TrimSuffix(value, "0m")
	}
	return value
}

// wrap breaks text into lines of at most width bytes, unless a word is longer.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

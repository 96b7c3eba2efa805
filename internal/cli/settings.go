package cli

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/whence-dev/whence/internal/flags"
)

// EnvPrefix is the prefix of environment variables. The rest is the flag's name in capitals with
// underscores: --max-queued is WHENCE_MAX_QUEUED.
const EnvPrefix = "WHENCE_"

// EnvName returns the environment variable of a flag.
func EnvName(flagName string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// configFlag is the flag that names the YAML file.
const configFlag = "config"

// settings are the flags of a command and the sources of their values.
type settings struct {
	flags   *flag.FlagSet
	config  *string
	sources map[string]string // by flag; flags with their default value are absent
}

// newSettings returns the settings of a command. Only a service takes its file from the environment:
// the other commands have other flags, and run in the same environment.
func newSettings(declare func(*flag.FlagSet), service bool) *settings {
	s := &settings{flags: flag.NewFlagSet("", flag.ContinueOnError), sources: map[string]string{}}
	declare(s.flags)
	s.config = s.flags.String(configFlag, "", "YAML `file` with the values of flags, by their names")
	flags.Group(s.flags, flags.Configuration, configFlag)
	if !service {
		flags.NoEnvironment(s.flags, configFlag)
	}
	flags.Group(s.flags, flags.Other) // the rest
	return s
}

// load sets the flags that the command line leaves out from the environment, and those that both
// leave out from the YAML file. The error has a line for each wrong value.
func (s *settings) load(line *pflag.FlagSet) error {
	line.Visit(func(f *pflag.Flag) { s.sources[f.Name] = "on the command line" })
	var wrong []error
	s.flags.VisitAll(func(f *flag.Flag) {
		if !flags.InEnvironment(f) {
			return
		}
		name := EnvName(f.Name)
		value := os.Getenv(name)
		if _, set := s.sources[f.Name]; set || value == "" {
			return
		}
		s.sources[f.Name] = "as " + name + " in the environment"
		if err := f.Value.Set(value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s is %s in the environment; %s", name, quote(f, value), expected(f, err)))
		}
	})
	if *s.config != "" {
		wrong = append(wrong, s.loadFile(*s.config)...)
	}
	return errors.Join(wrong...)
}

// setFrom sets a flag from a line of the file, unless a source of higher precedence has set it.
func (s *settings) setFrom(where string, e entry) error {
	f := s.flags.Lookup(e.key)
	switch {
	case f == nil:
		return fmt.Errorf("%s: there is no flag %.64q%s", where, e.key, s.similar(e.key, ""))
	case e.key == configFlag:
		return fmt.Errorf("%s: config is %.64q; a file cannot name another file", where, e.values)
	}
	if source, set := s.sources[e.key]; set && !strings.HasPrefix(source, inFile) {
		return nil
	}
	s.sources[e.key] = inFile + where
	for _, value := range e.values {
		if err := f.Value.Set(value); err != nil {
			return fmt.Errorf("%s: %s is %s; %s", where, e.key, quote(f, value), expected(f, err))
		}
	}
	return nil
}

const inFile = "in "

// flagError translates an error of the command line.
func (s *settings) flagError(err error) error {
	var (
		unknown *pflag.NotExistError
		invalid *pflag.InvalidValueError
		missing *pflag.ValueRequiredError
	)
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		name, _, _ := strings.Cut(unknown.GetSpecifiedShortnames(), "=")
		return fmt.Errorf("there is no flag -%.64s%s", name, s.similar(name, "--"))
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		return fmt.Errorf("there is no flag --%.64s%s", name, s.similar(name, "--"))
	case errors.As(err, &invalid):
		if f := s.flags.Lookup(invalid.GetFlag().Name); f != nil {
			return fmt.Errorf("--%s is %s; %s", f.Name, quote(f, invalid.GetValue()), expected(f, invalid.Unwrap()))
		}
	case errors.As(err, &missing):
		return fmt.Errorf("--%s needs a value", missing.GetSpecifiedName())
	}
	return err
}

// maxDistance is the maximum edit distance of a misspelt name from a suggestion.
const maxDistance = 2

// similar returns a question with the flags whose names are similar to name, or "". Cobra compares
// the names of commands; so the flags pose as commands here.
func (s *settings) similar(name, dashes string) string {
	names := &cobra.Command{SuggestionsMinimumDistance: maxDistance}
	s.flags.VisitAll(func(f *flag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	all := names.SuggestionsFor(name)
	if slices.Contains(all, name) {
		all = []string{name}
	}
	for i := range all {
		all[i] = dashes + all[i]
	}
	return didYouMean(all)
}

// didYouMean returns a question with at most three suggestions, or "" without any.
func didYouMean(suggestions []string) string {
	if len(suggestions) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(suggestions[:min(len(suggestions), 3)], " or ") + "?"
}

var flagInText = regexp.MustCompile(`--[a-z][a-z0-9-]*`)

// explain adds to an error about flags where their values come from.
func (s *settings) explain(err error) error {
	var wrong *configError
	if !errors.As(err, &wrong) {
		return err
	}
	text := wrong.Error()
	var seen []string
	for _, found := range flagInText.FindAllString(text, -1) {
		name := strings.TrimPrefix(found, "--")
		f, source := s.flags.Lookup(name), s.sources[name]
		if f == nil || slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		if source == "" {
			source = "by default"
		}
		text += fmt.Sprintf("\n  --%s is %s, %s", name, quote(f, fullPath(f)), source)
	}
	return &ExitError{misused, errors.New(text)}
}

// fullPath returns the value of f, and an absolute path for a flag that names a file or a directory.
func fullPath(f *flag.Flag) string {
	value := f.Value.String()
	if kind, _ := flags.Unquote(f); value == "" || kind != "file" && kind != "directory" {
		return value
	}
	path, err := filepath.Abs(value)
	if err != nil {
		return value
	}
	return path
}

// A configError is an error about the values of flags, which the error names.
type configError struct{ error }

// quote quotes a value for an error, unless it is a secret.
func quote(f *flag.Flag, value string) string {
	if flags.IsSecret(f) && value != "" {
		return "a secret that is not shown"
	}
	return fmt.Sprintf("%.256q", value)
}

// expected says which values f takes. err is the error of another value.
func expected(f *flag.Flag, err error) string {
	want := ""
	if g, ok := f.Value.(flag.Getter); ok {
		switch g.Get().(type) {
		case bool:
			want = "true or false"
		case int, int64:
			want = "a whole number"
		case uint, uint64:
			want = "a whole number that is not negative"
		case float64:
			want = "a number"
		case time.Duration:
			want = "a duration such as 300ms, 30s or 1m30s"
		}
	}
	switch {
	case want == "":
		return err.Error()
	case strings.Contains(err.Error(), "out of range"):
		return "it must be " + want + ", and this one is out of range"
	default:
		return "it must be " + want
	}
}

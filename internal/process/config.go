// Package process is the common part of the services' main functions: configuration, logs and
// signals.
package process

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/peterbourgon/ff/v3"
	"github.com/peterbourgon/ff/v3/ffyaml"
)

// EnvPrefix is the prefix of environment variables. The rest is the flag's name in capitals with
// underscores: --max-queued is WHENCE_MAX_QUEUED.
const EnvPrefix = "WHENCE"

// Parse fills the flags of fs from args, the environment and the YAML file named by --config, in
// this order of precedence. A file's keys are flag names; an unknown key is an error. Parse returns
// flag.ErrHelp after printing help. Arguments that are not flags are an error.
func Parse(fs *flag.FlagSet, args []string, help io.Writer) error {
	fs.String("config", "", "YAML `file` with the values of flags, by their names")
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	err := ff.Parse(fs, args,
		ff.WithEnvVarPrefix(EnvPrefix),
		ff.WithConfigFileFlag("config"),
		ff.WithConfigFileParser(ffyaml.Parser),
	)
	if errors.Is(err, flag.ErrHelp) {
		usage(fs, help)
		return flag.ErrHelp
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err != nil {
		return fmt.Errorf("%w\nrun %s --help to see all flags", err, fs.Name())
	}
	return nil
}

func usage(fs *flag.FlagSet, w io.Writer) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nEach flag can also be set in the environment or in the file of --config; flags win over the\nenvironment, which wins over the file.\n\n", fs.Name())
	fs.VisitAll(func(f *flag.Flag) {
		arg, text := flag.UnquoteUsage(f)
		name := "--" + f.Name
		if arg != "" {
			name += " " + arg
		}
		fmt.Fprintf(&b, "  %s\n        %s\n", name, text)
		if f.Name != "config" {
			fmt.Fprintf(&b, "        environment %s", envName(f.Name))
			if f.DefValue != "" {
				fmt.Fprintf(&b, ", default %s", f.DefValue)
			}
			b.WriteByte('\n')
		}
	})
	_, _ = io.WriteString(w, b.String()) // an error here could only be reported to the same writer
}

func envName(flagName string) string {
	return EnvPrefix + "_" + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

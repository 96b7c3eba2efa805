package command

import (
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/internal/cli"
)

// Keys returns the command keys. Running api-services read the file again when it changes.
func Keys() *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Short: "Manage the file of API keys",
		Long: "Manage the file of API keys, --keys of api-service. Running api-services read it again when it changes.\nThe file has only digests: a key is shown once, when it is added.",
		Example: `  whence keys add --tenant search --id search-1 --expires 720h
  whence keys list --file /etc/whence/keys.yaml
  whence keys revoke search-1`,
	}
	cli.Subcommands(cmd, keysAdd(), keysList(), keysRevoke())
	return cmd
}

func fileFlag(fs *flag.FlagSet, file *string) {
	fs.StringVar(file, "file", "keys.yaml", "the `file` of --keys")
}

func keysAdd() *cobra.Command {
	var (
		file   string
		k      keys.Key
		within time.Duration
	)
	cmd := &cobra.Command{
		Use: "add --tenant NAME [flags]", Short: "Add a key, and print it",
		Long:    "Add a key, and print it on the standard output.",
		Example: "  whence keys add --tenant search --id search-1",
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if k.Tenant == "" {
				return cli.Misuse("--tenant is missing")
			}
			if within < 0 {
				return cli.Misuse("--expires is %v; it must not be negative", within)
			}
			if within > 0 {
				k.Expires = time.Now().Add(within)
			}
			return addKey(file, k, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cli.Attach(cmd, func(fs *flag.FlagSet) {
		fileFlag(fs, &file)
		fs.StringVar(&k.Tenant, "tenant", "", "`name` of the tenant that the key belongs to")
		fs.StringVar(&k.ID, "id", "", "`name` of the key in usage records; without it, the first digits of its digest")
		fs.DurationVar(&within, "expires", 0, "how long the key is valid; 0 for ever")
	})
	return cmd
}

func keysRevoke() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "Remove a key",
		Example: "  whence keys revoke search-1",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Misuse("name one key by its ID\nUsage: whence keys revoke ID [flags]")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			err := keys.Change(file, func(text []byte) ([]byte, error) { return keys.Revoke(text, args[0]) })
			if err == nil {
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "The key %s is removed from %s.\n", args[0], file)
			}
			return err
		},
	}
	cli.Attach(cmd, func(fs *flag.FlagSet) { fileFlag(fs, &file) })
	return cmd
}

func keysList() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "list", Short: "List the keys",
		Example: "  whence keys list --file /etc/whence/keys.yaml",
		Args:    cli.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return listKeys(file, cmd.OutOrStdout()) },
	}
	cli.Attach(cmd, func(fs *flag.FlagSet) { fileFlag(fs, &file) })
	return cmd
}

// addKey creates a key, prints it, and stores only its digest.
func addKey(file string, k keys.Key, out, notes io.Writer) error {
	key := ""
	id := k.ID
	err := keys.Change(file, func(text []byte) (changed []byte, err error) {
		if changed, key, err = keys.Add(text, k); err != nil {
			return nil, err
		}
		entries, err := keys.List(changed)
		if err == nil && id == "" {
			id = entries[len(entries)-1].Name()
		}
		return changed, err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(notes, "The new API key %s of the tenant %s. It is shown once: %s has only its digest.\nServices started with --keys %[3]s accept it.\n", id, k.Tenant, file)
	if err == nil {
		_, err = fmt.Fprintln(out, key)
	}
	return err
}

func listKeys(file string, out io.Writer) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	entries, err := keys.List(text)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tTENANT\tEXPIRES") //nolint:errcheck // Flush returns the error
	for _, e := range entries {
		expires := "never"
		if !e.Expires.IsZero() {
			expires = e.Expires.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", e.Name(), e.Tenant, expires) //nolint:errcheck // likewise
	}
	return w.Flush()
}

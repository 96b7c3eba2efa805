package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/whence-dev/whence/api-service/keys/keyfile"
	"github.com/whence-dev/whence/internal/process"
)

const keysUsage = "usage: whence keys add --tenant NAME [--id ID] [--expires DURATION], whence keys revoke ID, or whence keys list; each takes --file FILE"

// manageKeys is the subcommand `keys`: it changes the file of API keys. Running api-services load it again.
func manageKeys(args []string, out, notes *os.File) error {
	if len(args) == 0 {
		return errors.New(keysUsage)
	}
	verb := args[0]
	fs := flag.NewFlagSet("whence keys "+verb, flag.ContinueOnError)
	file := fs.String("file", "keys.yaml", "the `file` of --keys")
	switch verb {
	case "add":
		var k keyfile.Key
		fs.StringVar(&k.Tenant, "tenant", "", "`name` of the tenant that the key belongs to")
		fs.StringVar(&k.ID, "id", "", "`name` of the key in usage records; without it, the first digits of its digest")
		within := fs.Duration("expires", 0, "how long the key is valid; 0 for ever")
		if err := process.Parse(fs, args[1:], out); err != nil {
			return err
		}
		if *within < 0 {
			return fmt.Errorf("--expires is %v; it must not be negative", *within)
		}
		if *within > 0 {
			k.Expires = time.Now().Add(*within)
		}
		return addKey(*file, k, out, notes)
	case "revoke":
		id := ""
		if len(args) > 1 && !strings.HasPrefix(args[1], "-") {
			id, args = args[1], args[1:]
		}
		if err := process.Parse(fs, args[1:], out); err != nil {
			return err
		}
		if id == "" {
			return errors.New("usage: whence keys revoke ID --file FILE")
		}
		return keyfile.Change(*file, func(text []byte) ([]byte, error) { return keyfile.Revoke(text, id) })
	case "list":
		if err := process.Parse(fs, args[1:], out); err != nil {
			return err
		}
		return listKeys(*file, out)
	default:
		return fmt.Errorf("there is no command %q; %s", verb, keysUsage)
	}
}

// addKey creates a key, prints it, and stores only its digest.
func addKey(file string, k keyfile.Key, out, notes io.Writer) error {
	key := ""
	err := keyfile.Change(file, func(text []byte) (changed []byte, err error) {
		changed, key, err = keyfile.Add(text, k)
		return changed, err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(notes, "A new API key of the tenant %s. It is shown once: %s has only its digest.\n", k.Tenant, file)
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
	entries, err := keyfile.List(text)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tTENANT\tEXPIRES") //nolint:errcheck // Flush says it
	for _, e := range entries {
		expires := "never"
		if !e.Expires.IsZero() {
			expires = e.Expires.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", e.Name(), e.Tenant, expires) //nolint:errcheck // likewise
	}
	return w.Flush()
}

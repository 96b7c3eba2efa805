package process

import (
	"errors"
	"flag"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// NameFlag adds the flag of a hop's name to fs. It refuses a name that is not valid in a path.
func NameFlag(fs *flag.FlagSet, name *string, def string) {
	*name = def
	fs.Var((*hopName)(name), "name", "this instance's `name` in paths and logs")
}

type hopName string

func (n *hopName) String() string { return string(*n) }

// Set implements flag.Value.
func (n *hopName) Set(name string) error {
	if p := streamerr.NewPath(name); p.String() != name || name == "" {
		return errors.New("a name is 1 to 128 characters of printable ASCII, without > and without spaces at its ends")
	}
	*n = hopName(name)
	return nil
}

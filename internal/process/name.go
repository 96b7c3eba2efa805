package process

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxHost bounds the host in an instance's name, in bytes, so that its port always fits. Host names
// of Linux have at most 64.
const maxHost = 64

const nameUsage = "this instance's `name` in paths and logs"

// NameFlag adds the flag of a hop's name to fs. It refuses a name that is not valid in a path.
func NameFlag(fs *flag.FlagSet, name *string, def string) {
	*name = def
	fs.Var((*hopName)(name), "name", nameUsage)
}

// InstanceFlag is NameFlag for a service whose instances have different names by default. An unset
// name stays empty, and means InstanceName.
func InstanceFlag(fs *flag.FlagSet, name *string, service string) {
	*name = ""
	fs.Var((*hopName)(name), "name", fmt.Sprintf("%s; without it, %s/ with the machine's host name and the port of --listen, such as %[2]s/gpu-7:8082", nameUsage, service))
}

// InstanceName returns the default name of an instance that listens on addr: the service, the
// machine's host name and the port. It is the same after a restart.
func InstanceName(service string, addr net.Addr) string {
	machine, _ := os.Hostname() // "" after an error
	return instanceName(service, machine, addr)
}

// instanceName uses the machine's host name instead of the address, because services on several
// machines may listen on the same address, and because clients read names in paths. Without a host
// name it uses the address.
func instanceName(service, machine string, addr net.Addr) string {
	where := addr.String()
	host := streamerr.NewPath(machine).String()
	if _, port, err := net.SplitHostPort(where); err == nil && host != "" {
		where = net.JoinHostPort(host[:min(len(host), maxHost)], port)
	}
	return streamerr.NewPath(service + "/" + where).String()
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

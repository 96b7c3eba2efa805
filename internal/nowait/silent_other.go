//go:build !unix

package nowait

import "net"

// Silent returns false, because the state of a connection cannot be known.
func Silent(net.Conn) bool { return false }

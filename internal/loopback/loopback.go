// Package loopback has what tests and measurements need of their machine: addresses for servers, and the
// bound of a wait.
package loopback

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

// Patience bounds every wait. It is generous: only a failure takes this long, also on a machine that
// stops for a while.
const Patience = 2 * time.Minute

// Linux takes the ports of outgoing connections from a range above these. A server that is restarted
// on one of these ports finds it free.
const (
	firstPort = 10_000
	endPort   = 32_000
	maxTries  = 1000
)

var (
	givenMu sync.Mutex
	given   = map[int]bool{} // ports that FreeAddr has returned
)

// FreeAddr returns a free loopback address, and never the same one again.
func FreeAddr() (string, error) {
	givenMu.Lock()
	defer givenMu.Unlock()
	var err error
	for range maxTries {
		port := firstPort + rand.IntN(endPort-firstPort)
		if given[port] {
			continue
		}
		var ln net.Listener
		if ln, err = new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err != nil {
			continue
		}
		given[port] = true
		return ln.Addr().String(), ln.Close()
	}
	return "", fmt.Errorf("no free port after %d tries: %w", maxTries, err)
}

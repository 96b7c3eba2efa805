package stand

import (
	"net"

	"github.com/whence-dev/whence/bench/process"
)

// other starts a server that the services depend on, and waits until it listens on addr.
func (s *Stand) other(addr, name, file string, args ...string) error {
	p, err := process.Start(s.builds.Dir, name, file, args...)
	if err != nil {
		return err
	}
	s.Others = append(s.Others, p)
	return p.Listening(addr)
}

// Redis starts a Redis server, and returns its URL.
func (s *Stand) Redis() (string, error) {
	addr, err := process.FreeAddr()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	return "redis://" + addr + "/0", s.other(addr, "redis", "redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", s.builds.Dir)
}

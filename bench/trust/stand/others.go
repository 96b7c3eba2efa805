package stand

import (
	"net"
	"path/filepath"
	"strings"

	"github.com/whence-dev/whence/bench/process"
	"github.com/whence-dev/whence/internal/loopback"
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

// Etcd starts an etcd server, and returns the URL under which the services of the row register.
func (s *Stand) Etcd() (string, error) {
	addr, err := loopback.FreeAddr()
	if err != nil {
		return "", err
	}
	peer, err := loopback.FreeAddr()
	if err != nil {
		return "", err
	}
	url, peerURL := "http://"+addr, "http://"+peer
	return "etcd://" + addr + "/whence", s.other(addr, "etcd", "etcd", "--data-dir", filepath.Join(s.builds.Dir, "etcd-"+strings.ReplaceAll(addr, ":", "-")),
		"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL, "--initial-cluster", "default="+peerURL)
}

// Redis starts a Redis server, and returns its URL.
func (s *Stand) Redis() (string, error) {
	addr, err := loopback.FreeAddr()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	return "redis://" + addr + "/0", s.other(addr, "redis", "redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", s.builds.Dir)
}

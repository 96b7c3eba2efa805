package lab

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/whence-dev/whence/internal/loopback"
)

// Tool returns the path of the first installed program of some names. Programs of the system's
// administrator count, too.
func Tool(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		path := filepath.Join("/usr/sbin", name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", strings.Join(names, " or "))
}

// Redis returns the command of a Redis server that has its files in a directory, and its URL.
func Redis(dir string, args ...string) (c Command, url string, err error) {
	if c.File, err = Tool("redis-server"); err != nil {
		return c, "", err
	}
	addr, err := loopback.FreeAddr()
	if err != nil {
		return c, "", err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return c, "", err
	}
	c.Name = "redis"
	c.Args = append([]string{"--bind", host, "--port", port, "--save", "", "--dir", dir}, args...)
	c.Ready = says("Ready to accept connections")
	return c, "redis://" + addr + "/0", nil
}

// Etcd returns the command of an etcd server that has its data in a directory, and the URL under which
// services register.
func Etcd(dir string) (c Command, url string, err error) {
	if c.File, err = Tool("etcd"); err != nil {
		return c, "", err
	}
	addr, err := loopback.FreeAddr()
	if err != nil {
		return c, "", err
	}
	peer, err := loopback.FreeAddr()
	if err != nil {
		return c, "", err
	}
	here, there := "http://"+addr, "http://"+peer
	c.Name = "etcd"
	c.Args = []string{
		"--data-dir", dir, "--listen-client-urls", here, "--advertise-client-urls", here,
		"--listen-peer-urls", there, "--initial-advertise-peer-urls", there, "--initial-cluster", "default=" + there,
	}
	c.Ready = says("ready to serve", "serving insecure client requests", "serving client")
	return c, "etcd://" + addr + "/whence", nil
}

// says returns a function that waits until a server prints one of some texts.
func says(texts ...string) func(*Process) error {
	return func(p *Process) error {
		l := p.Out
		if p.Name == "etcd" {
			l = p.Log
		}
		_, err := p.Await(l, "that it is ready", func(line string) bool {
			for _, text := range texts {
				if strings.Contains(line, text) {
					return true
				}
			}
			return false
		})
		return err
	}
}

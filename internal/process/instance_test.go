package process

import (
	"net"
	"strings"
	"testing"

	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestInstanceNamesHaveTheMachineAndThePort(t *testing.T) {
	at := func(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	for _, c := range []struct {
		machine string
		addr    net.Addr
		want    string
	}{
		{"gpu-7", at("127.0.0.1", 8082), "llm-worker/gpu-7:8082"},
		{"gpu-7", at("127.0.0.1", 8083), "llm-worker/gpu-7:8083"},
		{"gpu-8.example.org", at("0.0.0.0", 8082), "llm-worker/gpu-8.example.org:8082"},
		{"gpu-7", at("::", 8082), "llm-worker/gpu-7:8082"},
		{"gpu-7", &net.UnixAddr{Name: "/run/worker", Net: "unix"}, "llm-worker//run/worker"},
		{"", at("10.0.0.7", 8082), "llm-worker/10.0.0.7:8082"},
		{"", at("fd00::7", 8082), "llm-worker/[fd00::7]:8082"},
		{"a > b", at("10.0.0.7", 8082), "llm-worker/a  b:8082"},
		{"é", at("10.0.0.7", 8082), "llm-worker/10.0.0.7:8082"},
		{strings.Repeat("x", 300), at("10.0.0.7", 65535), "llm-worker/" + strings.Repeat("x", 64) + ":65535"},
	} {
		got := instanceName("llm-worker", c.machine, c.addr)
		if got != c.want || streamerr.NewPath(got).String() != got {
			t.Errorf("the worker at %v on %q is called %q; want %q", c.addr, c.machine, got, c.want)
		}
	}
}

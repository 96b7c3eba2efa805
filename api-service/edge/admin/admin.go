// Package admin configures the admin listener of api-service: the address on which operators find metrics,
// profiles, the streams of all tenants, the workers and the console, apart from the public listener.
package admin

import (
	"flag"
	"fmt"
	"net"
	"strings"

	"github.com/cloudwego/hertz/pkg/route"

	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/gate"
	"github.com/whence-dev/whence/pkg/metrics"
)

// A Config configures the admin listener. The zero value has none: then the public listener serves operators and the
// console.
type Config struct {
	Listen    string // host:port; "" means no admin listener
	NoConsole bool   // no listener serves the console
}

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Listen, "admin-listen", "", "`host:port` of a listener for operators, which serves metrics, profiles, the streams of all tenants, workers and the console instead of the public listener. Beyond loopback it requires --operator-key. Port 0 takes any free port; empty turns it off")
	fs.BoolVar(&c.NoConsole, "no-console", false, "do not serve the console")
}

// On reports whether there is an admin listener.
func (c *Config) On() bool { return c.Listen != "" }

// Validate checks c. operatorKey is the key of operators, or empty.
func (c *Config) Validate(operatorKey string) error {
	if !c.On() {
		return nil
	}
	addr, err := net.ResolveTCPAddr("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--admin-listen: %w", err)
	}
	if !gate.Loopback(addr) && strings.TrimSpace(operatorKey) == "" {
		return fmt.Errorf("--admin-listen is %s, which other machines reach: set --operator-key, or listen on 127.0.0.1", c.Listen)
	}
	return nil
}

// Open listens on the address of c, or returns nil if there is no admin listener.
func (c *Config) Open(operatorKey string) (net.Listener, error) {
	if err := c.Validate(operatorKey); err != nil || !c.On() {
		return nil, err
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("--admin-listen: %w", err)
	}
	return ln, nil
}

// Routes adds the metrics of the process and Go's profiles to h. m may be nil.
func Routes(h *route.Engine, m *metrics.Metrics) {
	if m == nil {
		return
	}
	serve := connection.Handler(m.Pages(true))
	h.GET("/metrics", serve)
	h.GET("/debug/pprof/*profile", serve)
	h.POST("/debug/pprof/symbol", serve)
}

// Package command is api-service as a command.
package command

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/observe"
)

// New returns the service. Its flags set c.
func New(c *edge.Config) *cli.Service {
	return &cli.Service{
		Name: "api-service", Listen: edge.DefaultListen, Flags: c.Flags, LibraryLog: edge.LogTo, Pages: c.Admin.On,
		Check: func() error { return Check(c) },
		Run: func(ctx context.Context, ln net.Listener, log *slog.Logger, out observe.Outputs) error {
			c.Metrics, c.Traces, c.Usage = out.Metrics, out.Traces, out.Usage
			return edge.Run(ctx, *c, ln, log)
		},
	}
}

// Check reports what is wrong with c and with the files that it names.
func Check(c *edge.Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	ring, err := keys.Load(c.Keys, slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("--keys: %w", err)
	}
	ring.Close()
	if c.TLS.On() {
		if _, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key); err != nil {
			return fmt.Errorf("--tls-cert and --tls-key: %w", err)
		}
	}
	return nil
}

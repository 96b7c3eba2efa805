package redisclient

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
)

// Over returns options whose connections are made by dial.
func Over(dial func() net.Conn, messages bool, maxBytes int64) (*redis.Options, error) {
	c := Config{URL: "redis://h", Messages: messages, MaxBytes: maxBytes}
	o, err := Options(c)
	if err != nil {
		return nil, err
	}
	g := &guard{config: c, dial: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }}
	o.Dialer, o.PoolSize = g.dialChecked, 1
	return o, nil
}

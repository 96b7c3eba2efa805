// Package redisclient has the options and the log that all Redis clients of api-service share, and
// checks the replies of the server before the Redis library reads them.
//
// # Replies
//
// go-redis trusts the server. It allocates what a reply announces ($999999999999 ends the process:
// out of memory), recurses as deeply as a reply is nested, puts an array as a key into a map, and
// its goroutine for Pub/Sub panics if a message has a wrong type: nothing that a caller does can
// recover from that. Other clients are no better: rueidis panics in its own goroutine and allocates
// what is announced, and redigo allocates what is announced. So each connection of a client checks
// the bytes of the server as they pass (conn.go, reply.go). A reply that breaks a rule never
// reaches the library: the connection is closed with ErrReply, and its caller goes on as if the
// server was down.
package redisclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// errURL does not quote the URL, which may have a password. Errors of the URL parser do.
var errURL = errors.New("the URL is malformed; write redis://USER:PASSWORD@HOST:PORT/DATABASE, rediss:// for TLS, or unix:///SOCKET, with special characters of the password percent-encoded")

// CheckURL returns an error if the URL of a server is not valid.
func CheckURL(url string) error {
	_, err := Options(Config{URL: url})
	return err
}

// A Config describes the clients of a server.
type Config struct {
	URL     string        // redis://user:password@host:port/database
	Timeout time.Duration // bounds each step of a call
	// Messages makes clients that only subscribe. All other clients cannot subscribe.
	Messages bool
	// MaxBytes bounds the replies that all connections of the clients receive at a time. With
	// Messages it is maxGreeting.
	MaxBytes int64
	Log      *slog.Logger
}

// maxGreeting bounds the replies before the messages: to HELLO, AUTH and SELECT.
const maxGreeting = 256 << 10

// Options returns the options of the clients. Clients with copies of them share the bound of c.
// Calls are not retried: streams continue without the server.
func Options(c Config) (*redis.Options, error) {
	o, err := redis.ParseURL(c.URL)
	if err != nil {
		return nil, errURL
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = c.Timeout, c.Timeout, c.Timeout, c.Timeout
	o.MaxRetries, o.DialerRetries = -1, 1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.DisableIdentity = true
	if c.Messages {
		c.MaxBytes = maxGreeting
	}
	g := &guard{config: c, dial: redis.NewDialer(o)}
	o.Dialer = g.dialChecked
	return o, nil
}

// LogTo sends the log lines of the Redis library, in the whole process, to w.
func LogTo(w io.Writer) { redis.SetLogger(printer{w}) }

type printer struct{ w io.Writer }

// Printf is the method that the library calls.
func (p printer) Printf(_ context.Context, format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, format, args...) // there is nowhere left to report the error
}

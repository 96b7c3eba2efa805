// Package redisclient has the options and the log that all Redis clients of api-service share.
package redisclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// errURL does not quote the URL, which may have a password. Errors of the URL parser do.
var errURL = errors.New("the URL is malformed; write redis://USER:PASSWORD@HOST:PORT/DATABASE, rediss:// for TLS, or unix:///SOCKET, with special characters of the password percent-encoded")

// Options returns the options for the server at a redis:// URL. timeout bounds each step of a call. Calls are not
// retried: streams continue without the server.
func Options(url string, timeout time.Duration) (*redis.Options, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, errURL
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.MaxRetries, o.DialerRetries = -1, 1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.DisableIdentity = true
	return o, nil
}

// LogTo sends the log lines of the Redis library, in the whole process, to w.
func LogTo(w io.Writer) { redis.SetLogger(printer{w}) }

type printer struct{ w io.Writer }

// Printf is the method that the library calls.
func (p printer) Printf(_ context.Context, format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, format, args...) // there is nowhere left to report the error
}

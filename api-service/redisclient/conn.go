package redisclient

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/whence-dev/whence/internal/process"
)

const (
	// refusedPause is how long no connection is made after a refused reply: the library connects
	// again at once.
	refusedPause = 100 * time.Millisecond
	// refusedLogPause is the time between two log lines about refused replies.
	refusedLogPause = time.Minute
)

// A guard makes the connections of a client, and checks what the server sends.
type guard struct {
	config Config
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)

	used atomic.Int64 // bytes of the replies that are being received

	mu     sync.Mutex
	last   error         // of the last refused reply
	until  time.Duration // on the clock of process.Uptime: when a connection may be made again
	logged time.Duration // when a refused reply was logged; 0 for never
}

// dialChecked makes a connection.
func (g *guard) dialChecked(ctx context.Context, network, addr string) (net.Conn, error) {
	g.mu.Lock()
	last, waits := g.last, g.until > process.Uptime()
	g.mu.Unlock()
	if waits {
		return nil, last
	}
	inner, err := g.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, guard: g}
	c.replies.charge = c.charge
	if raw, ok := inner.(syscall.Conn); ok { // with which the library finds out that the server has closed an idle connection
		return struct {
			*conn
			syscall.Conn
		}{c, raw}, nil
	}
	return c, nil
}

// refused records a refused reply.
func (g *guard) refused(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := process.Uptime()
	g.last, g.until = err, now+refusedPause
	if g.config.Log != nil && (g.logged == 0 || now-g.logged >= refusedLogPause) {
		g.logged = now
		g.config.Log.Warn("a reply of redis was refused, and its connection is closed", "err", err)
	}
}

// A conn is a connection to a server. It counts the commands that it writes, and checks the replies
// that it reads. The memory of a reply counts until all commands have their replies: by then the
// library has given the replies to its callers.
type conn struct {
	net.Conn
	guard *guard

	mu       sync.Mutex // go-redis reads and writes a connection for messages at the same time
	commands commands
	replies  replies
	charged  int64
	err      error // the connection is refused
}

func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	done, greeted, err := c.commands.count(p)
	c.replies.pending += done
	c.replies.messages = c.guard.config.Messages && greeted
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	if refused := c.replies.check(p[:n]); refused != nil {
		c.err = refused
		_ = c.Conn.Close() // the error of the reply matters more
		c.release()
		c.guard.refused(refused)
		return 0, refused
	}
	if c.replies.pending == 0 {
		c.release()
	}
	return n, err
}

// Close closes the connection.
func (c *conn) Close() error {
	c.mu.Lock()
	c.release()
	c.mu.Unlock()
	return c.Conn.Close()
}

func (c *conn) charge(bytes int64) error {
	c.charged += bytes
	if bound := c.guard.config.MaxBytes; c.guard.used.Add(bytes) > bound {
		return refuse("the replies that are being received have more than %d bytes", bound)
	}
	return nil
}

func (c *conn) release() {
	c.guard.used.Add(-c.charged)
	c.charged = 0
}

// commands counts the commands in what the library writes: arrays of strings.
type commands struct {
	at     place
	kind   byte
	number int64
	parts  int64 // of the command that follow
	first  bool  // the next string is the name of the command
	name   [16]byte
	named  int

	greeted bool // a command has followed the greeting
}

// greeting has the commands with which the library begins a connection.
var greeting = map[string]bool{"hello\r\n": true, "auth\r\n": true, "select\r\n": true}

// count takes the next bytes. It returns the number of commands that end with them, and whether the
// library has ended its greeting.
func (c *commands) count(p []byte) (done int, greeted bool, err error) {
	for i := 0; i < len(p); {
		b := p[i]
		switch c.at {
		case atKind:
			c.kind, c.number, c.at = b, 0, inLine
			if b != '*' && b != '$' {
				return done, c.greeted, fmt.Errorf("redisclient: a command has a part of type %q", b)
			}
		case inLine:
			switch {
			case b >= '0' && b <= '9':
				c.number = c.number*10 + int64(b-'0')
			case b == '\n' && c.kind == '*':
				c.parts, c.first, c.named, c.at = c.number, true, 0, atKind
			case b == '\n':
				c.number += 2 // the end of the line
				c.at = inText
			}
		default:
			n := int(min(int64(len(p)-i), c.number))
			if c.first {
				c.named += copy(c.name[c.named:], p[i:i+n])
			}
			i += n
			if c.number -= int64(n); c.number > 0 {
				continue
			}
			c.greeted = c.greeted || c.first && !greeting[string(c.name[:c.named])]
			c.at, c.first = atKind, false
			if c.parts--; c.parts == 0 {
				done++
			}
			continue
		}
		i++
	}
	return done, c.greeted, nil
}

package guard

import (
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/guard/flood"
)

// Flooded returns a function that counts and logs the connections that a server of o's calls closes
// because of a flood.
func Flooded(o Options) flood.Report {
	o.setDefaults()
	lines := newLines()
	return func(peer net.Addr, err error) {
		o.Observer.CallRefused(string(Frames))
		if lines.due(Frames) {
			o.Log.Warn("grpc connections are closed", "hop", o.Name, "limit", string(Frames), "peer", peer.String(), "err", err)
		}
	}
}

// setDefaults replaces nil fields.
func (o *Options) setDefaults() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
}

// lineEvery is the time between two log lines about one limit.
const lineEvery = 10 * time.Second

// lines bounds the log lines about limits. All methods are safe for concurrent use.
type lines struct {
	mu   sync.Mutex // guards last
	last map[Limit]time.Time
}

func newLines() *lines { return &lines{last: map[Limit]time.Time{}} }

// due reports whether a line about a limit is due, and records that it is written.
func (l *lines) due(limit Limit) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.last[limit]; ok && time.Since(last) < lineEvery {
		return false
	}
	l.last[limit] = time.Now()
	return true
}

package guard

import (
	"errors"
	"flag"
	"math"
	"time"
)

// Limits bound the calls that callers keep open on a server; 0 means no bound.
type Limits struct {
	// FirstMessage is the time within which a call must send its first message.
	FirstMessage time.Duration
	// PerConnection is the number of open calls per connection; For replaces Auto by a number.
	PerConnection int
	// Total is the number of open calls of all connections together; For replaces Auto by a number.
	Total int
}

// MaxHeaderBytes bounds the headers of a call on a gRPC port, uncompressed. The libraries' default is
// 16 MiB.
const MaxHeaderBytes = 64 << 10

// Auto stands for a number of calls that For derives from the server's number of streams.
const Auto = -1

// Default has the limits of a server that configures none.
var Default = Limits{FirstMessage: 5 * time.Second, PerConnection: Auto, Total: Auto}

// For returns l for a server with at most n streams, with numbers instead of Auto. A connection may
// have a fifth more calls than streams, so that streams reach the limit of streams first and calls
// that stop or inspect a stream are still answered. All connections together may have twice that
// number.
func (l *Limits) For(n int) Limits {
	out := *l
	each := n + n/5 + 1
	if out.PerConnection == Auto {
		out.PerConnection = each
	}
	if out.Total == Auto {
		out.Total = 2 * max(each, out.PerConnection)
	}
	return out
}

// Flags adds the flags of l to fs, with the values of l as defaults.
func (l *Limits) Flags(fs *flag.FlagSet) {
	fs.DurationVar(&l.FirstMessage, "first-message-timeout", l.FirstMessage, "how long an open gRPC call may take to send its first message; 0 means no limit")
	fs.IntVar(&l.PerConnection, "max-calls-per-connection", l.PerConnection, "maximum open gRPC calls of one connection; further calls are refused; 0 means no limit, -1 means a fifth more than the maximum of live streams")
	fs.IntVar(&l.Total, "max-calls", l.Total, "maximum open gRPC calls of all connections; further calls are refused; 0 means no limit, -1 means twice the maximum of one connection")
}

// Validate returns an error if l is invalid.
func (l *Limits) Validate() error {
	if l.FirstMessage < 0 {
		return errors.New("--first-message-timeout must not be negative")
	}
	if l.PerConnection < Auto || l.Total < Auto {
		return errors.New("--max-calls-per-connection and --max-calls must be at least -1")
	}
	return nil
}

// Transport returns the value for the MaxConcurrentStreams of grpc-go, which resets further calls
// without a message. It is twice PerConnection, so that callers reach the guard's limit first and
// read its error. Only a caller that floods a connection without reading the answers reaches this
// limit.
func (l *Limits) Transport() uint32 {
	if l.PerConnection <= 0 || l.PerConnection > math.MaxUint32/2 {
		return math.MaxUint32
	}
	return uint32(2 * l.PerConnection)
}

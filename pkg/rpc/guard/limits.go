package guard

import (
	"errors"
	"flag"
	"math"
	"time"
)

// Limits bound the calls that callers hold open on a server; 0 is no bound.
type Limits struct {
	// FirstMessage is how long a call may take to send its first message.
	FirstMessage time.Duration
	// PerConnection is how many calls of one connection may be open at a time; Auto leaves it to For.
	PerConnection int
	// Total is how many calls of all connections together may be open at a time; Auto leaves it to For.
	Total int
}

// Auto is a number of calls that follows from the number of streams that a server takes.
const Auto = -1

// Default has the limits of a server without configured limits.
var Default = Limits{FirstMessage: 5 * time.Second, PerConnection: Auto, Total: Auto}

// For returns l for a server that takes n streams at a time, with numbers instead of Auto: a fifth more calls than streams
// for a connection, so that streams meet the limit of streams first and calls that stop or inspect a stream are still
// answered, and twice that in all.
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
	fs.DurationVar(&l.FirstMessage, "first-message-timeout", l.FirstMessage, "how long an open gRPC call may take to send its first message; 0 for no limit")
	fs.IntVar(&l.PerConnection, "max-calls-per-connection", l.PerConnection, "gRPC calls of one connection that may be open at a time, further calls are refused; 0 for no limit, -1 for a fifth more than live streams")
	fs.IntVar(&l.Total, "max-calls", l.Total, "gRPC calls of all connections that may be open at a time, further calls are refused; 0 for no limit, -1 for twice those of one connection")
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

// Transport is the bound for the MaxConcurrentStreams of grpc-go, which resets further calls without a message. It is
// twice PerConnection, so that callers meet the guard's limit first and read its error; only a caller that floods a
// connection without reading the answers meets this limit.
func (l *Limits) Transport() uint32 {
	if l.PerConnection <= 0 || l.PerConnection > math.MaxUint32/2 {
		return math.MaxUint32
	}
	return uint32(2 * l.PerConnection)
}

package sim

import (
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A fault is the simulated failure of a sequence: after a number of tokens it fails or stalls. The
// faults depend on the seed and on the number of sequences that have joined before, so a stream
// that moves to another worker does not meet the same fault again.
type fault struct {
	fails, stalls bool
	after         int
	until         time.Time // end of the stall; zero before it, and for a stall without an end
	silent        bool
}

// faultTokens is the upper bound, exclusive, of the number of tokens before a fault.
const faultTokens = 32

func (o *Options) fault(nth uint64) fault {
	draw := mix(o.Seed + nth*golden)
	f := fault{after: int(mix(draw) % faultTokens)}
	switch u := fraction(draw); {
	case u < o.Fail:
		f.fails = true
	case fraction(mix(draw+1)) < o.Stall:
		f.stalls = true
	}
	return f
}

// strike returns the fault of a sequence that has generated made tokens: an error, or silent if it
// stalls now.
func (f *fault) strike(made int, o *Options) (silent bool, err error) {
	switch {
	case made < f.after || !f.fails && !f.stalls:
		return false, nil
	case f.fails:
		e := streamerr.New(streamerr.EngineFailed, "the simulator fails this stream because of --sim-fail")
		e.Path = streamerr.NewPath("engine")
		return false, e
	case !f.silent:
		f.silent = true
		if o.StallFor > 0 {
			f.until = time.Now().Add(o.scaled(o.StallFor))
		}
		return true, nil
	default:
		return f.until.IsZero() || time.Now().Before(f.until), nil
	}
}

// scaled returns the duration d at the speed of o.
func (o *Options) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) / o.Speed) }

package sim

import (
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A fault is what is to go wrong with a sequence: after so many of its own tokens it fails, or falls silent. Which sequences have
// faults depends on the seed and on how many have joined before, so that a stream that moves has other luck elsewhere.
type fault struct {
	fails, stalls bool
	after         int
	until         time.Time // end of the silence; zero before it, and for one without an end
	silent        bool
}

// faultTokens is below how many tokens faults strike.
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

// strike reports what is wrong with a sequence that has made so many tokens: it fails, or it is silent now.
func (f *fault) strike(made int, o *Options) (silent bool, err error) {
	switch {
	case made < f.after || !f.fails && !f.stalls:
		return false, nil
	case f.fails:
		e := streamerr.New(streamerr.EngineFailed, "the simulator fails this stream, as --sim-fail has it")
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

// scaled is how long something takes at the speed of o.
func (o *Options) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) / o.Speed) }

package lab

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// A Strike is a way to break a service, or the network in front of it, for a while. The zero Signal
// leaves the process alone, and the zero Wire the network.
type Strike struct {
	Name   string
	Signal syscall.Signal
	Wire   WireFault
}

// strikes are the ways to break a service. kill, drain and freeze strike its process, the others the
// network.
var (
	kill   = Strike{Name: "killed", Signal: syscall.SIGKILL}
	drain  = Strike{Name: "drained", Signal: syscall.SIGTERM}
	freeze = Strike{Name: "frozen", Signal: syscall.SIGSTOP}

	strikes = []Strike{
		kill, drain, freeze,
		{Name: "its packets are dropped", Wire: Partition},
		{Name: "packets to it are dropped", Wire: WireFault{HoldToCallee: true}},
		{Name: "packets from it are dropped", Wire: WireFault{HoldToCaller: true}},
		{Name: "its packets are late", Wire: WireFault{Delay: 100 * time.Millisecond}},
		{Name: "its connections are cut in mid-frame", Wire: WireFault{Cut: 40}},
		{Name: "its callers lose their power", Wire: WireFault{Orphan: true}},
		{Name: "its connections are reset and refused", Wire: WireFault{Refuse: true}},
	}
)

// Draw returns one of strikes. A delay, and the bytes before a cut, are random up to those of strikes.
func Draw(random *rand.Rand) Strike {
	s := strikes[random.IntN(len(strikes))]
	if s.Wire.Delay > 0 {
		s.Wire.Delay = 1 + time.Duration(random.Int64N(int64(s.Wire.Delay)))
	}
	if s.Wire.Cut > 0 {
		s.Wire.Cut = 1 + random.IntN(s.Wire.Cut)
	}
	return s
}

// Hit strikes a process, or the wire in front of it.
func (s *Strike) Hit(p *Process, w *Wire) error {
	switch s.Signal {
	case 0:
		w.Set(s.Wire)
		return nil
	case syscall.SIGKILL:
		return p.Kill()
	case syscall.SIGTERM:
		return p.Terminate()
	default:
		return p.Signal(s.Signal)
	}
}

// Mend ends a strike: it heals the wire, lets a frozen process go on, or starts an ended process
// again.
func (s *Strike) Mend(p *Process, w *Wire) error {
	switch s.Signal {
	case 0:
		w.Set(WireFault{})
		return nil
	case syscall.SIGSTOP:
		return p.Signal(syscall.SIGCONT)
	default:
		return p.Relaunch()
	}
}

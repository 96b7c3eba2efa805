package main

import (
	"context"
	"fmt"
	"time"

	"github.com/whence-dev/whence/bench/trust/report"
	"github.com/whence-dev/whence/bench/wire"
)

// A hop names the services that are called through wires.
type hop int

const (
	noHop hop = iota
	workerHop
	chatHop
)

// partitioned returns the row of a service that its callers can no longer reach. Another one is there.
func partitioned(name string, at hop, cut func(*wire.Wire), bound time.Duration) row {
	l := layout{workers: 1, chats: 2, edges: 1, wired: at}
	if at == workerHop {
		l.workers, l.chats = 2, 1
	}
	return row{name: name, layout: l, tokens: 400, spared: true, play: func(_ context.Context, s *stand) ([]finding, error) {
		w, err := s.busiest()
		if err != nil {
			return nil, err
		}
		cut(w)
		s.finish()
		return []finding{{What: "longest pause of a stream", Unit: report.Millis, Got: inMillis(s.longest()), Bound: inMillis(bound)}}, nil
	}}
}

// probeTraffic is more than the bytes a second of health probes and PINGs on one wire.
const probeTraffic = 1000

// busiest returns the wire with the most traffic. It fails if no stream runs through a wire, because
// then a cut would measure nothing.
func (s *stand) busiest() (*wire.Wire, error) {
	before := make([]int64, len(s.wires))
	for i, w := range s.wires {
		before[i] = w.Passed.Load()
	}
	time.Sleep(time.Second)
	var most *wire.Wire
	bytes := int64(0)
	for i, w := range s.wires {
		if n := w.Passed.Load() - before[i]; n > bytes {
			most, bytes = w, n
		}
	}
	if bytes < probeTraffic+pace*int64(s.streams) {
		return nil, fmt.Errorf("%d streams have %d bytes a second on the busiest wire: no stream goes through it", s.streams, bytes)
	}
	return most, nil
}

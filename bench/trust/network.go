package main

import (
	"context"
	"fmt"
	"time"

	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/lab"
)

var networkRows = []trial.Row{
	partitioned("packets to llm-worker are dropped, another one continues", lab.LLMWorker, drop),
	partitioned("connections to llm-worker are rejected, another one continues", lab.LLMWorker, (*lab.Wire).Reject),
	partitioned("packets to chat-service are dropped, another one continues", lab.ChatService, drop),
	partitioned("connections to chat-service are rejected, another one continues", lab.ChatService, (*lab.Wire).Reject),
}

func drop(w *lab.Wire) { w.Set(lab.Partition) }

// partitioned returns the row of a service that its callers can no longer reach, while another instance
// is available.
func partitioned(name string, at string, cut func(*lab.Wire)) trial.Row {
	l := lab.Layout{Workers: 1, Chats: 2, Edges: 1, Wired: at}
	if at == lab.LLMWorker {
		l.Workers, l.Chats = 2, 1
	}
	return trial.Row{Name: name, Layout: l, Tokens: 400, Spared: true, Play: func(_ context.Context, t *trial.Trial) ([]trial.Finding, error) {
		w, err := busiest(t)
		if err != nil {
			return nil, err
		}
		cut(w)
		return []trial.Finding{t.Pause()}, nil
	}}
}

// probeTraffic is more than the bytes a second of health probes and PINGs on one wire.
const probeTraffic = 1000

// busiest returns the wire with the most traffic. It fails if no stream runs through a wire, because
// then a cut would measure nothing.
func busiest(t *trial.Trial) (*lab.Wire, error) {
	before := make([]int64, len(t.Wires))
	for i, w := range t.Wires {
		before[i] = w.Passed.Load()
	}
	time.Sleep(time.Second)
	var most *lab.Wire
	bytes := int64(0)
	for i, w := range t.Wires {
		if n := w.Passed.Load() - before[i]; n > bytes {
			most, bytes = w, n
		}
	}
	if bytes < probeTraffic+trial.Pace*int64(t.Streams) {
		return nil, fmt.Errorf("%d streams have %d bytes a second on the busiest wire: no stream goes through it", t.Streams, bytes)
	}
	return most, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/lab"
)

var stallRows = []trial.Row{
	{Name: "client stops reading", Layout: lab.Layout{
		Workers: 1, Chats: 1, Edges: 1, Worker: []string{"--pprof"}, Chat: []string{"--pprof"},
		// Small buffers, so that a stream of 4 kB a second fills them within the row.
		Edge: []string{"--pprof", "--max-unsent", "4096", "--write-timeout", "2m", "--drain", rollGrace.String()},
	}, Paced: true, Tokens: 700, Spared: true, Play: stopReading},
}

const (
	stallTimeout  = 15   // X-Request-Timeout of a third of the streams whose clients do not read, in seconds
	stalledTokens = 950  // 47 s
	narrow        = 2048 // the receive buffer of these clients, in bytes
)

// stopReading adds a fifth as many streams whose clients read nothing. A third of them is stopped, a
// third runs into its deadline, and the rest is there when the api-service drains.
func stopReading(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
	const lasts = 5 * time.Second
	n := max(3, t.Streams/5)
	before, err := besideReaders(ctx, t, n, lasts)
	if err != nil {
		return nil, err
	}
	empty, err := heap(t)
	if err != nil {
		return nil, err
	}
	conns, err := open(ctx, t, "stalls-", n)
	defer leave(conns)
	if err != nil {
		return nil, err
	}
	opened := time.Now()
	time.Sleep(4 * time.Second) // fills the buffers
	after := reader.P99(t.Gaps.During(lasts))
	full, err := heap(t)
	if err != nil {
		return nil, err
	}
	stopped, err := stopStalled(ctx, t, n/3)
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Until(opened.Add(stallTimeout * time.Second)))
	late, err := lateStalled(ctx, t, n/3, 2*n/3)
	if err != nil {
		return nil, err
	}
	t.Finish()
	took, err := trial.Terminate(t.Edges[0])
	return []trial.Finding{
		{What: "memory of all services per stream that is not read", Got: float64(full-empty) / float64(n) / (1 << 20)},
		{What: "p99 gap between tokens of the others, more than beside as many readers", Got: max(0, 100*float64(after-before)/float64(before))},
		{What: "stop of such a stream until all hops have ended, longest", Got: trial.InMillis(stopped)},
		{What: "deadline of such a stream until all hops have ended, longest", Got: trial.InMillis(late)},
		{What: "SIGTERM of its api-service until the process has ended", Got: trial.InMillis(took)},
	}, err
}

// besideReaders returns the p99 gap of the streams of the row beside n more streams whose clients read:
// more streams alone make the steps of the engine longer.
func besideReaders(ctx context.Context, t *trial.Trial, n int, lasts time.Duration) (time.Duration, error) {
	conns, err := open(ctx, t, "reads-", n)
	defer leave(conns)
	if err != nil {
		return 0, err
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	for _, c := range conns {
		reading.Go(func() { _, _ = io.Copy(io.Discard, c) }) // until the connection is closed
	}
	time.Sleep(time.Second)
	p99 := reader.P99(t.Gaps.During(lasts))
	leave(conns)
	return p99, awaitLive(ctx, t, "the streams of the additional readers have ended", func(live int) bool { return live <= t.Streams })
}

// awaitLive waits until ok accepts the worker's number of live streams.
func awaitLive(ctx context.Context, t *trial.Trial, what string, ok func(live int) bool) error {
	return lab.Await(ctx, what, func() bool {
		live, err := trial.Sum(ctx, t.Workers[0], "whence_streams_live")
		return err == nil && ok(int(live))
	})
}

func leave(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

// heap returns the memory of the services after a garbage collection: heap and stacks.
func heap(t *trial.Trial) (sum int64, err error) {
	for _, p := range []*lab.Process{t.Workers[0], t.Chats[0], t.Edges[0]} {
		h, err := p.Heap()
		if err != nil {
			return 0, err
		}
		sum += h.InUse + h.Stack
	}
	return sum, nil
}

// stalled returns the id of a stream whose client does not read.
func stalled(i int) string { return "stalls-" + strconv.Itoa(i) }

// open opens n streams on connections from which nothing is read, and returns when they run. A third of
// them has a deadline.
func open(ctx context.Context, t *trial.Trial, name string, n int) (conns []net.Conn, err error) {
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		refused := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, narrow)
		})
		return errors.Join(refused, err)
	}}
	for i := range n {
		conn, err := dialer.DialContext(ctx, "tcp", t.Edges[0].Addr)
		if err != nil {
			return conns, err
		}
		conns = append(conns, conn)
		r := reader.Reader{ID: name + strconv.Itoa(i)}
		req, err := r.Request(ctx, t.Edges[0].Addr, stalledTokens)
		if err != nil {
			return conns, err
		}
		if i >= n/3 && i < 2*n/3 {
			req.Header.Set("X-Request-Timeout", strconv.Itoa(stallTimeout))
		}
		if err := req.Write(conn); err != nil {
			return conns, err
		}
	}
	return conns, awaitLive(ctx, t, "the additional streams run", func(live int) bool { return live >= t.Streams+n })
}

// stopStalled stops the first n of the streams whose clients do not read, and returns the longest
// time until all hops had ended. The api-service must not have written all of their tokens by then:
// otherwise the row would measure nothing.
func stopStalled(ctx context.Context, t *trial.Trial, n int) (longest time.Duration, err error) {
	for i := range n {
		at := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "http://"+t.Edges[0].Addr+"/v1/streams/"+stalled(i), nil)
		if err != nil {
			return 0, err
		}
		resp, err := t.HTTP.Do(req)
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		s, err := overStory(ctx, t, stalled(i), "user_stop")
		if err != nil {
			return 0, err
		}
		engine, _ := s.Engine()
		if edge := s.Hops[0]; edge.Generated >= engine.Received {
			return 0, fmt.Errorf("the api-service has written all %d tokens of %s: the client reads", edge.Generated, stalled(i))
		}
		for _, hop := range s.Hops {
			longest = max(longest, hop.Over().Sub(at))
		}
	}
	return longest, nil
}

// lateStalled returns the longest time between the deadline of the streams from to to-1 and their end
// on all hops.
func lateStalled(ctx context.Context, t *trial.Trial, from, to int) (longest time.Duration, err error) {
	for i := from; i < to; i++ {
		s, err := overStory(ctx, t, stalled(i), "deadline")
		if err != nil {
			return 0, err
		}
		due := s.Hops[0].Began.Add(stallTimeout * time.Second)
		for _, hop := range s.Hops {
			longest = max(longest, hop.Over().Sub(due))
		}
	}
	return longest, nil
}

// overStory returns the story of a stream that has ended on all hops with a reason.
func overStory(ctx context.Context, t *trial.Trial, id, reason string) (s reader.Story, err error) {
	if e := lab.Await(ctx, id+" has ended on all hops", func() bool {
		s, err = reader.Tell(ctx, t.HTTP, t.Edges[0].Addr, id)
		return err == nil && len(s.Hops) == 3 && !slices.ContainsFunc(s.Hops, func(h reader.HopStory) bool { return h.State != "ended" })
	}); e != nil {
		return s, errors.Join(e, err)
	}
	for _, hop := range s.Hops {
		if hop.Reason != reason {
			return s, fmt.Errorf("%s has ended on %s with %s, want %s", id, hop.Hop, hop.Reason, reason)
		}
	}
	return s, nil
}

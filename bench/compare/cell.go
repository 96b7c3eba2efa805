package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/whence-dev/whence/bench/load"
	"github.com/whence-dev/whence/bench/paced"
	histograms "github.com/whence-dev/whence/internal/load"
	"github.com/whence-dev/whence/lab"
)

const (
	settling = 200 * time.Millisecond
	// openClients is the maximum number of concurrent requests of an open loop.
	openClients = 500
)

// A cell holds the measurements of one system in one round of one scenario. Times are in
// microseconds.
type cell struct {
	Scenario string             `json:"scenario"`
	System   string             `json:"system"`
	Round    int                `json:"round"`
	Seconds  float64            `json:"seconds"` // of the measurement
	Tokens   int64              `json:"tokens"`  // received during the measurement
	Requests int64              `json:"requests"`
	CPU      map[string]float64 `json:"cpu"`       // of each process during the measurement, in microseconds
	Latency  quantiles          `json:"latency"`   // from a token's due time until its arrival
	TTFT     quantiles          `json:"ttft"`      // from a request's due time until its first token
	Stop     quantiles          `json:"stop"`      // from a client's departure until the engine stopped
	StopLast float64            `json:"stop_last"` // from the first departure until the engine stopped the last stream
	Memory   float64            `json:"memory"`    // bytes per open stream
	Wasted   int64              `json:"wasted"`    // tokens generated for clients that had left
	Left     int                `json:"left"`      // clients
	Unheard  int                `json:"unheard"`   // clients that left before the engine received their request
	Failed   int64              `json:"failed"`    // streams
	Problems []string           `json:"problems"`  // of some of them
}

// quantiles of a histogram of microseconds.
type quantiles struct {
	N   int64   `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func quantilesOf(h *histograms.Histogram) quantiles {
	if h.Count() == 0 {
		return quantiles{}
	}
	return quantiles{N: h.Count(), P50: float64(h.Percentile(50)), P99: float64(h.Percentile(99))}
}

// measure runs a scenario on a system for a time.
func (b *bench) measure(ctx context.Context, s *scenario, sys *system, r *deployment, window time.Duration) (*cell, error) {
	c := &cell{Scenario: s.name, System: sys.name, CPU: map[string]float64{}}
	if err := b.engine.set(ctx, s.pace); err != nil {
		return nil, err
	}
	before, err := r.memory()
	if err != nil {
		return nil, err
	}
	rec := load.NewRecorder()
	loads := s.begin(ctx, r.addr, rec)
	if err := s.open(ctx, rec); err != nil {
		c.Problems = append(c.Problems, err.Error())
	}
	if s.storm {
		return c, b.storm(ctx, c, r, rec, loads)
	}
	profiled := b.profileCPU(s, sys, r, window)
	if err := errors.Join(b.window(c, r, rec, window), profiled()); err != nil {
		return nil, err
	}
	if s.memory {
		after, err := r.memory()
		if err != nil {
			return nil, err
		}
		c.Memory = float64(after-before) / float64(s.streams)
		if err := b.profile(s, sys, r); err != nil {
			return nil, err
		}
	}
	probes := rec
	if s.ttft {
		probes = load.NewRecorder()
		l := load.Open(ctx, r.addr, ttftRate, openClients, probes, func() load.Request { return load.Request{Tokens: 1, Prompt: shortPrompt} })
		lab.Pause(ctx, window)
		l.Stop()
	}
	b.leave(ctx, c, rec, loads)
	c.Latency = quantilesOf(rec.Summary().Latency)
	c.TTFT = quantilesOf(probes.Summary().TTFT)
	return c, ctx.Err()
}

// leave makes all clients leave, waits until the engine has stopped their streams, and records the
// outcomes.
func (b *bench) leave(ctx context.Context, c *cell, rec *load.Recorder, loads []load.Load) {
	for _, l := range loads {
		l.Stop()
	}
	if err := b.engine.idle(ctx); err != nil {
		c.Problems = append(c.Problems, err.Error())
	}
	sum := rec.Summary()
	c.Failed = sum.Failed
	for _, err := range sum.Errors {
		c.Problems = append(c.Problems, err.Error())
	}
	c.departures(sum.Left, b.engine.ended)
}

// storm measures the CPU time from the departure of all clients until shortly after the engine has
// stopped, because services then still write records and log lines.
func (b *bench) storm(ctx context.Context, c *cell, r *deployment, rec *load.Recorder, loads []load.Load) error {
	spent, err := b.spent(r)
	if err != nil {
		return err
	}
	begun := time.Now()
	b.leave(ctx, c, rec, loads)
	lab.Pause(ctx, settling)
	c.Seconds = time.Since(begun).Seconds()
	if c.CPU, err = b.spent(r); err != nil {
		return err
	}
	for name := range c.CPU {
		c.CPU[name] -= spent[name]
	}
	return ctx.Err()
}

// begin starts the clients.
func (s *scenario) begin(ctx context.Context, addr string, rec *load.Recorder) (all []load.Load) {
	if s.rate > 0 {
		all = append(all, load.Open(ctx, addr, s.rate, openClients, rec, s.next))
	} else {
		all = append(all, load.Closed(ctx, addr, s.streams, rec, s.next))
	}
	if s.unread > 0 {
		all = append(all, load.Unread(ctx, addr, s.unread, load.NewRecorder(), s.next()))
	}
	if s.beside != nil {
		all = append(all, load.Open(ctx, addr, besideRate, openClients, load.NewRecorder(), func() load.Request { return *s.beside }))
	}
	return all
}

// open waits until every stream has received its first token, and a moment longer.
func (s *scenario) open(ctx context.Context, rec *load.Recorder) error {
	if s.pace.Prefill == 0 && s.life == 0 {
		if err := lab.Await(ctx, "all streams have begun", func() bool { return rec.Begun() >= int64(s.streams) }); err != nil {
			return fmt.Errorf("only %d of %d streams have begun: %w", rec.Begun(), s.streams, errors.Join(append(rec.Summary().Errors, err)...))
		}
	}
	lab.Pause(ctx, max(settling, s.life))
	return nil
}

// window measures the CPU time of the processes and the tokens of the clients over a time window.
func (b *bench) window(c *cell, r *deployment, rec *load.Recorder, length time.Duration) error {
	rec.Measure(true)
	defer rec.Measure(false)
	tokens, requests, begun := rec.Tokens(), rec.Requests(), time.Now()
	spent, err := b.spent(r)
	if err != nil {
		return err
	}
	time.Sleep(length)
	c.CPU, err = b.spent(r)
	c.Seconds = time.Since(begun).Seconds()
	c.Tokens, c.Requests = rec.Tokens()-tokens, rec.Requests()-requests
	for name := range c.CPU {
		c.CPU[name] -= spent[name]
	}
	return err
}

// spent returns the CPU time that each process has used, in microseconds.
func (b *bench) spent(r *deployment) (map[string]float64, error) {
	all := map[string]float64{}
	for _, p := range append([]*lab.Process{b.engine.Process}, r.procs...) {
		t, err := p.CPU()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		all[p.Name] = float64(t) / float64(time.Microsecond)
	}
	own, err := lab.CPUTime(0)
	all["load"] = float64(own) / float64(time.Microsecond)
	return all, err
}

// departures computes the stop latency after each departure, and the number of wasted tokens.
func (c *cell) departures(left []load.Departure, ended map[uint64]paced.Ending) {
	h := histograms.NewHistogram()
	var first, last time.Time
	for _, d := range left {
		e, ok := ended[d.Stream]
		if !ok || !e.Stopped {
			c.Unheard++
			continue
		}
		c.Left++
		h.Record(e.At.Sub(d.At))
		c.Wasted += int64(max(0, e.Generated-d.Received))
		if first.IsZero() || d.At.Before(first) {
			first = d.At
		}
		if e.At.After(last) {
			last = e.At
		}
	}
	c.StopLast = float64(last.Sub(first)) / float64(time.Microsecond)
	c.Stop = quantilesOf(h)
}

// memory returns the resident memory of the system's processes, in bytes.
func (r *deployment) memory() (total int64, err error) {
	for _, p := range r.procs {
		n, e := p.RSS()
		total += n
		err = errors.Join(err, e)
	}
	return total, err
}

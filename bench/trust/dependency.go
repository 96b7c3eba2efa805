package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/server"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/lab"
)

var dependencyRows = []trial.Row{
	{Name: "Redis is frozen", Layout: one, Prepare: withRedis, Tokens: 500, Spared: true, Play: redis.lost(signalled(syscall.SIGSTOP))},
	{Name: "Redis is killed", Layout: one, Prepare: withRedis, Tokens: 500, Spared: true, Play: redis.lost(signalled(syscall.SIGKILL))},
	{Name: "etcd is frozen", Layout: one, Prepare: withEtcd, Tokens: 500, Spared: true, Play: etcd.lost(signalled(syscall.SIGSTOP))},
	{Name: "etcd is killed", Layout: one, Prepare: withEtcd, Tokens: 500, Spared: true, Play: etcd.lost(signalled(syscall.SIGKILL))},
	collectorLost("the OpenTelemetry collector does not answer", (*server.Collector).Stall),
	collectorLost("the OpenTelemetry collector dies", (*server.Collector).Close),
}

// A dependency is a server that services need, but the streams of the row do not.
type dependency struct {
	name string
	of   pick   // the services that depend on it
	says string // what their logs say when the server does not answer
}

var (
	redis     = dependency{"Redis", edgesOf, "redis does not answer"}
	etcd      = dependency{"etcd", func(t *trial.Trial) []*lab.Process { return slices.Concat(t.Chats, t.Edges) }, "discovery does not answer"}
	telemetry = dependency{"the collector", func(t *trial.Trial) []*lab.Process { return slices.Concat(t.Workers, t.Chats, t.Edges) }, "could not be pushed"}
)

// withRedis starts a Redis that the api-services use.
func withRedis(t *trial.Trial, l *lab.Layout) error {
	url, err := t.Other(lab.Redis(t.Builds.Dir))
	l.Edge = append(slices.Clone(l.Edge), "--redis", url, "--token-key", "trust")
	return err
}

// withEtcd starts an etcd through which the services find each other.
func withEtcd(t *trial.Trial, l *lab.Layout) (err error) {
	dir, err := os.MkdirTemp(t.Builds.Dir, "etcd-")
	if err != nil {
		return err
	}
	l.Registry, err = t.Other(lab.Etcd(dir))
	return err
}

// signalled returns a fault that sends a signal to the other server of the row.
func signalled(signal syscall.Signal) func(*trial.Trial) error {
	return func(t *trial.Trial) error { return t.Others[0].Signal(signal) }
}

// lost returns the play of a row in which a server that the services depend on gets a fault.
func (d dependency) lost(fault func(*trial.Trial) error) func(context.Context, *trial.Trial) ([]trial.Finding, error) {
	return func(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
		const lasts = 5 * time.Second
		before := t.Ask(ctx, "", 20, lasts)
		if err := fault(t); err != nil {
			return nil, err
		}
		after := t.Ask(ctx, "", 20, lasts)
		silent := 0
		for _, p := range d.of(t) {
			if err := lab.Await(ctx, "the log of "+p.Name+" names "+d.name, func() bool { return strings.Contains(p.Log.String(), d.says) }); err != nil {
				silent++
			}
		}
		t.Finish()
		return append(trial.Beside(before, after), trial.Finding{What: fmt.Sprintf("services whose logs do not say that %s is away", d.name), Got: float64(silent)}), nil
	}
}

// collectorLost returns a row in which the collector of the services' metrics and spans gets a fault.
func collectorLost(name string, fault func(*server.Collector) error) trial.Row {
	var c *server.Collector
	prepare := func(t *trial.Trial, l *lab.Layout) (err error) {
		if c, err = server.NewCollector(); err != nil {
			return err
		}
		t.Closers = append(t.Closers, c)
		flags := []string{"--otlp", c.Addr, "--trace-ratio", "1"}
		for _, of := range []*[]string{&l.Worker, &l.Chat, &l.Edge} {
			*of = append(slices.Clone(*of), flags...)
		}
		return nil
	}
	play := telemetry.lost(func(*trial.Trial) error {
		if !c.Used() {
			return errors.New("no service has pushed anything to the collector")
		}
		return fault(c)
	})
	return trial.Row{Name: name, Layout: one, Prepare: prepare, Tokens: 500, Spared: true, Play: play}
}

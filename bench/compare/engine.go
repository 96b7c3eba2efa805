package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/whence-dev/whence/bench/paced"
	"github.com/whence-dev/whence/bench/relay"
	"github.com/whence-dev/whence/lab"
)

// serveEngine runs the process of the engine, with its two interfaces on two addresses.
func serveEngine(sse, worker string) error {
	e := &paced.Engine{}
	front, err := net.Listen("tcp", sse)
	if err != nil {
		return err
	}
	back, err := net.Listen("tcp", worker)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- http.Serve(front, e.Handler()) }() //nolint:gosec // the clients are the systems under test
	go func() {
		failed <- e.Worker(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))).Serve(context.Background(), back, 0)
	}()
	return <-failed
}

// serveRelay and serveEdge run the two processes of the relay on grpc-go.
func serveRelay(listen, worker string) error {
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	return relay.Middle(ln, worker)
}

func serveEdge(listen, middle string) error {
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	return relay.Edge(ln, middle, paced.Spell)
}

// An engine is the comparison's handle on the engine's process.
type engine struct {
	*lab.Process
	sse, worker string
	ended       map[uint64]paced.Ending // since the last reset
}

func startEngine(b *bench) (*engine, error) {
	addrs, err := addresses(2)
	if err != nil {
		return nil, err
	}
	e := &engine{sse: addrs[0], worker: addrs[1], ended: map[uint64]paced.Ending{}}
	if e.Process, err = lab.Start(lab.Command{Name: "engine", File: b.self, Args: []string{"engine", e.sse, e.worker}}); err != nil {
		return nil, err
	}
	if err := e.Answers(context.Background(), e.sse); err != nil {
		e.End()
		return nil, err
	}
	return e, nil
}

// set sets the pace of future streams, and clears the endings.
func (e *engine) set(ctx context.Context, p paced.Pace) error {
	if _, err := e.poll(ctx); err != nil {
		return err
	}
	e.ended = map[uint64]paced.Ending{}
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+e.sse+"/pace", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only the status is needed
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the engine answers %s", resp.Status)
	}
	return nil
}

// poll reads the endings since the last poll, and returns the number of running streams.
func (e *engine) poll(ctx context.Context) (running int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.sse+"/endings", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	var s paced.Status
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return 0, err
	}
	for _, one := range s.Ended {
		e.ended[one.Stream] = one
	}
	return s.Running, nil
}

// idle waits until no stream runs.
func (e *engine) idle(ctx context.Context) error {
	var failed error
	err := lab.Await(ctx, "the engine has stopped the streams whose clients have left", func() bool {
		var running int
		running, failed = e.poll(ctx)
		return failed != nil || running == 0
	})
	return errors.Join(err, failed)
}

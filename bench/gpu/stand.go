package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/whence-dev/whence/bench/process"
	"github.com/whence-dev/whence/internal/loopback"
)

// A stand holds the processes of a row: servers, and a Whence with a worker beside each of them.
type stand struct {
	dir    string
	server *serverMake
	opts   *options
	gpus   int

	servers []*process.Process
	workers []*service
	chat    *service
	api     *service
	http    http.Client
}

// A service is one process of Whence.
type service struct {
	*process.Process
	addr, kind string
	args       []string
}

// start starts servers, and a Whence on them. setup says how each of them is launched, and chat has
// further arguments of chat-service.
func (s *stand) start(ctx context.Context, servers int, setup func(l *launch), chat ...string) error {
	var workers []string
	for i := range servers {
		l := &launch{model: s.opts.model, share: "0.85"}
		if servers > max(1, s.gpus) {
			l.share = "0.40" // two servers on one GPU
		}
		var err error
		if l.port, err = freePort(); err != nil {
			return err
		}
		setup(l)
		if err := s.serve(ctx, i, l); err != nil {
			return err
		}
		w, err := s.add("llm-worker", i, s.server.worker(l, s.opts.model)...)
		if err != nil {
			return err
		}
		s.workers = append(s.workers, w)
		workers = append(workers, w.addr)
	}
	var err error
	if s.chat, err = s.add("chat-service", 0, append([]string{"--worker", strings.Join(workers, ","), "--model", s.opts.model}, chat...)...); err != nil {
		return err
	}
	if s.api, err = s.add("api-service", 0, "--chat", s.chat.addr); err != nil {
		return err
	}
	if err := s.api.Ready(s.api.addr); err != nil {
		return err
	}
	return s.await(ctx, "every worker is used", func() bool { return s.healthyWorkers(ctx) == servers })
}

// serve starts a server, and waits until it lists its model.
func (s *stand) serve(ctx context.Context, number int, l *launch) error {
	args := []string{}
	if s.gpus > 1 {
		args = append(args, "CUDA_VISIBLE_DEVICES="+strconv.Itoa(number%s.gpus))
	}
	if l.invariant && s.server.invariantEnv != "" {
		args = append(args, s.server.invariantEnv)
	}
	args = append(args, s.server.command(l)...)
	if l.invariant && s.server.invariantArg != "" {
		args = append(args, s.server.invariantArg)
	}
	args = append(args, strings.Fields(s.opts.extra)...)
	p, err := process.Start(s.dir, s.server.name, "env", args...)
	if err != nil {
		return err
	}
	s.servers = append(s.servers, p)
	begun := time.Now()
	for {
		if s.listed(ctx, l) {
			return nil
		}
		select {
		case <-p.Exited():
			return fmt.Errorf("the server has ended: %s", p.Tail())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
		if time.Since(begun) > s.opts.start {
			return fmt.Errorf("the server is not ready after %v: %s", s.opts.start, p.Tail())
		}
	}
}

// listed reports whether a server lists its model. A server that does not answer does not.
func (s *stand) listed(ctx context.Context, l *launch) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url()+"/v1/models", nil)
	if err != nil {
		return false
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// add starts a service of Whence.
func (s *stand) add(kind string, n int, args ...string) (*service, error) {
	addr, err := loopback.FreeAddr()
	if err != nil {
		return nil, err
	}
	p := &service{addr: addr, kind: kind, args: append([]string{"--listen", addr, "--name", kind + "/" + strconv.Itoa(n), "--log-level", "warn"}, args...)}
	return p, s.launch(p)
}

// launch starts the process of a service, for the first time or again.
func (s *stand) launch(p *service) (err error) {
	if p.Process, err = process.Start(s.dir, p.kind, filepath.Join(s.dir, p.kind), p.args...); err != nil {
		return err
	}
	return p.Listening(p.addr)
}

// end stops all processes.
func (s *stand) end() {
	s.http.CloseIdleConnections()
	all := s.servers
	for _, p := range append(s.workers, s.chat, s.api) {
		if p != nil && p.Process != nil {
			all = append(all, p.Process)
		}
	}
	for _, p := range all {
		p.End()
	}
	*s = stand{dir: s.dir, server: s.server, opts: s.opts, gpus: s.gpus}
}

// within bounds every wait.
const within = 2 * time.Minute

// await polls ok until it returns true, or fails after within.
func (s *stand) await(ctx context.Context, what string, ok func() bool) error {
	for until := time.Now().Add(within); !ok(); {
		if time.Now().After(until) {
			return errors.New("timeout: " + what)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func freePort() (int, error) {
	addr, err := loopback.FreeAddr()
	if err != nil {
		return 0, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}

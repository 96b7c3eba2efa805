package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/whence-dev/whence/internal/loopback"
	"github.com/whence-dev/whence/lab"
)

// A stand holds the processes of a row: servers, and a Whence with a worker beside each of them.
type stand struct {
	*lab.Path // nil before start
	dir       string
	server    *serverMake
	opts      *options
	gpus      int
	servers   []*lab.Process
	http      http.Client
}

// start starts servers, and a Whence on them. setup says how each of them is launched, and chat has
// further arguments of chat-service.
func (s *stand) start(ctx context.Context, servers int, setup func(l *launch), chat ...string) error {
	layout := lab.Layout{Workers: servers, Chats: 1, Edges: 1, Own: map[string][]string{}, Chat: append([]string{"--model", s.opts.model}, chat...)}
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
		layout.Own[lab.LLMWorker+"/"+strconv.Itoa(i)] = s.server.worker(l, s.opts.model)
	}
	var err error
	s.Path, err = layout.Start(ctx, func(service string, args ...string) (*lab.Process, error) {
		return lab.Start(lab.Command{Name: service, File: filepath.Join(s.dir, service), Args: args})
	})
	return err
}

// serve starts a server, and waits until it lists its model.
func (s *stand) serve(ctx context.Context, number int, l *launch) error {
	c := lab.Command{Name: s.server.name, Args: s.server.command(l)}
	c.File, c.Args = c.Args[0], c.Args[1:]
	if s.gpus > 1 {
		c.Env = append(c.Env, "CUDA_VISIBLE_DEVICES="+strconv.Itoa(number%s.gpus))
	}
	if l.invariant && s.server.invariantEnv != "" {
		c.Env = append(c.Env, s.server.invariantEnv)
	}
	if l.invariant && s.server.invariantArg != "" {
		c.Args = append(c.Args, s.server.invariantArg)
	}
	c.Args = append(c.Args, strings.Fields(s.opts.extra)...)
	p, err := lab.Start(c)
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

// end stops all processes.
func (s *stand) end() {
	s.http.CloseIdleConnections()
	for _, p := range s.servers {
		p.End()
	}
	if s.Path != nil {
		s.End()
	}
	*s = stand{dir: s.dir, server: s.server, opts: s.opts, gpus: s.gpus}
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

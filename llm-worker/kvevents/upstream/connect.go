package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An endpoint is a ZeroMQ address over TCP.
type endpoint struct {
	addr string // host:port
	bind bool   // the listener binds it, and the engine connects
}

// parseEndpoint parses an endpoint. As in vLLM's configuration, the host * is bound; an @ before
// the endpoint binds any other host, as in CZMQ. rank is added to the port.
func parseEndpoint(text string, rank uint32) (endpoint, error) {
	rest, bind := strings.CutPrefix(text, "@")
	addr, ok := strings.CutPrefix(rest, "tcp://")
	if !ok {
		return endpoint{}, fmt.Errorf("%.64q is not like tcp://127.0.0.1:5557, or tcp://*:5557 to let the engine connect", text)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return endpoint{}, err
	}
	if rank > 0 {
		n, err := strconv.ParseUint(port, 10, 16)
		if n += uint64(rank); err != nil || n > 65535 {
			return endpoint{}, fmt.Errorf("%.64q has no port from which rank %d could be counted", text, rank)
		}
		port = strconv.FormatUint(n, 10)
		addr = net.JoinHostPort(host, port)
	}
	ip, _ := netip.ParseAddr(host)
	switch {
	case host == "*":
		addr, bind = net.JoinHostPort("", port), true
	case ip.IsUnspecified():
		bind = true
	case host == "":
		return endpoint{}, fmt.Errorf("%.64q has no host; use * for all interfaces", text)
	}
	return endpoint{addr: addr, bind: bind}, nil
}

// redialEvery is the time between attempts to connect to an engine.
const redialEvery = time.Second

// Run listens until ctx is done.
func (l *Listener) Run(ctx context.Context) {
	listen, doing := l.connect, "connecting again each second"
	switch {
	case l.opts.Events == OverGRPC:
		listen = l.subscribe
	case l.events.bind:
		listen, doing = l.bind, "binding the address again each second"
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	logged := false
	for {
		err := listen(ctx, func() { logged = false })
		l.names.clear()
		if ctx.Err() != nil {
			return
		}
		if !logged {
			l.log.Warn("engine sends no KV events, so its cache is unknown", "events", l.opts.Events, "err", err, "then", doing)
			logged = true
		}
		timer.Reset(redialEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// closeWith closes a connection when ctx is done, or when the returned function is called.
func closeWith(ctx context.Context, c *conn) (closed func()) {
	undo := context.AfterFunc(ctx, func() { _ = c.Close() })
	return func() { undo(); _ = c.Close() }
}

// connect follows the engine at its address, and returns the error that ended it. It calls
// connected once the connection is established.
func (l *Listener) connect(ctx context.Context, connected func()) error {
	c, err := dial(ctx, l.events.addr, sub)
	if err != nil {
		return err
	}
	defer closeWith(ctx, c)()
	connected()
	return l.follow(ctx, c)
}

// maxGreetings bounds connections that have not yet completed their handshake; further ones are
// closed.
const maxGreetings = 8

// bind follows the engine that connects to our address, until ctx is done or the address is lost.
// There is one engine: a new connection replaces the previous one, which a restarted engine has
// left behind. bind calls bound when engines can connect.
func (l *Listener) bind(ctx context.Context, bound func()) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", l.events.addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var accepting sync.WaitGroup
	publishers := make(chan *conn)
	lost := make(chan error, 1)
	accepting.Go(func() { lost <- accept(ctx, ln, publishers) })
	defer accepting.Wait()
	defer cancel()
	addr := ln.Addr()
	l.bound.Store(&addr)
	defer l.bound.Store(nil)
	bound()
	l.log.Info("waiting for the engine to connect and publish its KV events", "events", l.opts.Events, "address", addr.String())

	var engine *conn // nil while none is connected
	var leave func()
	ended := make(chan error, 1)
	// nil for a moment after each connection, so that two alternating engines do not keep the loop
	// busy.
	next := publishers
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case c := <-next:
			next = nil
			pause.Reset(redialEvery)
			if engine != nil {
				before := engine.RemoteAddr().String()
				leave()
				<-ended //nolint:errcheck // we have ended it
				l.names.clear()
				l.log.Warn("another publisher of KV events has connected and replaces the previous one; give each engine its own worker and address",
					"events", l.opts.Events, "engine", c.RemoteAddr().String(), "before", before)
			}
			engine, leave = c, closeWith(ctx, c)
			go func() { ended <- l.follow(ctx, c) }() // waited for in this loop
		case <-pause.C:
			next = publishers
		case err := <-ended:
			leave()
			engine = nil
			l.names.clear()
			if ctx.Err() == nil {
				l.log.Warn("engine sends no KV events, so its cache is unknown until it connects again", "events", l.opts.Events, "err", err)
			}
		case err := <-lost:
			if engine != nil {
				leave()
				<-ended //nolint:errcheck // we have ended it
			}
			return err
		}
	}
}

// accept handshakes with new connections and passes publishers on, until ctx is done or ln fails.
// It closes ln.
func accept(ctx context.Context, ln net.Listener, publishers chan<- *conn) error {
	var greeting sync.WaitGroup
	defer greeting.Wait()
	undo := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer undo()
	defer ln.Close() //nolint:errcheck // it may be closed already
	places := make(chan struct{}, maxGreetings)
	for {
		nc, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = nc.Close()
			}
			return context.Cause(ctx)
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // such as too many open files
			select {
			case <-time.After(redialEvery):
			case <-ctx.Done():
			}
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			_ = nc.Close()
			continue
		}
		greeting.Go(func() {
			defer func() { <-places }()
			c, err := greet(ctx, nc, sub)
			if err != nil {
				return // the peer is not a publisher
			}
			select {
			case publishers <- c:
			case <-ctx.Done():
				_ = c.Close()
			}
		})
	}
}

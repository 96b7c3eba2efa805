package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// handedParams are parameters of NIXL's connector, with values that a conversion to Go's types would change.
const handedParams = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[12,9007199254740993]],"remote_engine_id":"7f3e-\u00fc",` +
	`"remote_request_id":"cmpl-1-0","remote_host":"10.0.0.7","remote_port":5600,"tp_size":1.0,"later":{"z":null,"a":[]}}`

// hands answers a request to read a prompt, as vLLM does.
func hands(params string) script {
	return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"x","finish_reason":"length"}],`+
			`"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2}},"kv_transfer_params":%s}`, params)
	}
}

func toRead() *workerv1.TokenRequest {
	r := request(1)
	r.KvTransfer = &workerv1.KVTransfer{What: &workerv1.KVTransfer_Ask{Ask: true}}
	return r
}

func takesPart(o *openai.Options) { o.HandsOver = true }

// overheard returns the outcome of a prefill.
func overheard(ctx context.Context, e *openai.Engine, req *workerv1.TokenRequest) (parameters []byte, end *llmv1.End, err error) {
	for out, e := range e.Generate(ctx, req) {
		if err = e; e != nil {
			break
		}
		if h := out.GetHandover(); h != nil {
			parameters = h.GetParameters()
		}
		if out.GetTokens() != nil {
			return nil, nil, errors.New("a prefill has yielded tokens")
		}
		end = out.GetEnd()
	}
	return parameters, end, err
}

// TestParametersGoFromServerToServerUnchanged covers the protocol of vLLM's proxies: an unstreamed request for
// one token, whose answer has the parameters for the next server's request.
func TestParametersGoFromServerToServerUnchanged(t *testing.T) {
	reads, answers := newFake(t, hands(handedParams)), newFake(t, counting)
	ctx := stream.WithID(t.Context(), "one")
	parameters, end, err := overheard(ctx, engineOn(t, reads.URL, takesPart), toRead())
	if err != nil || string(parameters) != handedParams {
		t.Fatalf("%s, %v", parameters, err)
	}
	if u := end.GetUsage(); u.GetPromptTokens() != 3 || u.GetCompletionTokens() != 0 || u.GetCachedTokens() != 2 || end.GetFinish() != llmv1.Finish_FINISH_LENGTH {
		t.Error(end)
	}
	asked := *reads.asked.Load()
	params, _ := asked["kv_transfer_params"].(map[string]any)
	for name, want := range map[string]any{"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": nil, "remote_block_ids": nil, "remote_host": nil, "remote_port": nil} {
		if got, there := params[name]; !there || got != want {
			t.Errorf("kv_transfer_params have %s %v", name, got)
		}
	}
	if _, there := asked["stream_options"]; asked["stream"] != false || asked["max_tokens"] != 1.0 || there || fmt.Sprint(asked["prompt"]) != "[10 11 12]" {
		t.Error(asked)
	}
	if id := reads.header.Load().Get("X-Request-Id"); id != "one" {
		t.Errorf("it was asked as %q, by which the two servers find each other", id)
	}

	req := request(4)
	req.KvTransfer = &workerv1.KVTransfer{What: &workerv1.KVTransfer_Parameters{Parameters: parameters}}
	r := read(ctx, engineOn(t, answers.URL, takesPart), req, nil)
	if r.err != nil || !slices.Equal(r.tokens, []uint32{100, 101, 102, 103}) {
		t.Fatal(r)
	}
	var got struct {
		Params json.RawMessage `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(*answers.body.Load(), &got); err != nil || string(got.Params) != handedParams {
		t.Errorf("the other server was told %s, %v", got.Params, err)
	}
	if asked := *answers.asked.Load(); asked["stream"] != true || asked["max_tokens"] != 4.0 {
		t.Error(asked)
	}
	if _, there := (*answers.asked.Load())["kv_transfer_params"]; !there {
		t.Error("nothing was told")
	}
	if r := read(ctx, engineOn(t, answers.URL), request(4), nil); r.err != nil {
		t.Fatal(r.err)
	}
	if _, there := (*answers.asked.Load())["kv_transfer_params"]; there {
		t.Error("a request that has none was told some")
	}
}

func TestFailedPrefillSaysWhy(t *testing.T) {
	status := func(code int) script {
		return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { w.WriteHeader(code) }
	}
	for name, c := range map[string]struct {
		answer script
		reason streamerr.Reason
	}{
		"no parameters":       {hands("null"), streamerr.EngineFailed},
		"no object":           {hands(`"x"`), streamerr.EngineFailed},
		"not JSON":            {hands(`{`), streamerr.EngineFailed},
		"too many":            {hands(`{"x":"` + strings.Repeat("x", 2<<20) + `"}`), streamerr.EngineFailed},
		"overloaded":          {status(http.StatusTooManyRequests), streamerr.Overloaded},
		"failed":              {status(http.StatusInternalServerError), streamerr.EngineFailed},
		"it is shutting down": {status(http.StatusServiceUnavailable), streamerr.Unavailable},
		"connection broke": {func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"id":`)
		}, streamerr.PeerLost},
	} {
		f := newFake(t, c.answer)
		parameters, _, err := overheard(t.Context(), engineOn(t, f.URL, takesPart), toRead())
		if e := streamerr.As(err); err == nil || e.Reason != c.reason || e.Path.String() != "engine" || parameters != nil {
			t.Errorf("%s: %v by %v, with %d bytes", name, err, e.Path, len(parameters))
		}
	}
}

func TestStopClosesTheConnectionOfAPrefill(t *testing.T) {
	begun := make(chan struct{})
	f := newFake(t, func(_ http.ResponseWriter, r *http.Request, _ map[string]any) {
		close(begun)
		<-r.Context().Done()
	})
	e := engineOn(t, f.URL, takesPart)
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	go func() {
		<-begun
		ctl.Stop(streamerr.New(streamerr.UserStop, "enough"))
	}()
	if _, _, err := overheard(ctx, e, toRead()); !errors.Is(err, streamerr.UserStop) {
		t.Error(err)
	}
	polltest.Eventually(t, "the server has noticed", func() bool { return f.live.Load() == 0 })
}

func TestParametersMustBeAnObject(t *testing.T) {
	f := newFake(t, counting)
	e := engineOn(t, f.URL, takesPart)
	for _, p := range []string{"x", "[]", `{"a":1`, `{}{}`, `{},"stream":false`} {
		req := request(4)
		req.KvTransfer = &workerv1.KVTransfer{What: &workerv1.KVTransfer_Parameters{Parameters: []byte(p)}}
		if r := read(t.Context(), e, req, nil); streamerr.As(r.err).Param != "kv_transfer.parameters" || f.asked.Load() != nil {
			t.Errorf("%s: %v", p, r.err)
		}
	}
}

// TestServerWithoutHandoversIsNotUsed: such a server would ignore the handover and read every prompt again,
// unnoticed.
func TestServerWithoutHandoversIsNotUsed(t *testing.T) {
	for _, owner := range []string{"sglang", "llamacpp", "library", "somebody"} {
		f := newFake(t, counting, func(f *fake) { f.owner = owner })
		_, health, log := watched(t, nil, f.URL, takesPart)
		polltest.Eventually(t, "the log says why "+owner+" is not used", func() bool { return strings.Contains(log.String(), "which only vLLM does") })
		select {
		case healthy := <-health:
			t.Error(owner, "is found healthy:", healthy)
		default:
		}
	}
}

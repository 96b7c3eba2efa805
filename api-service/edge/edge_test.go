package edge_test

import (
	"bufio"
	"context"
	"flag"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/api-service/edge/chats"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/inspect"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // the parallel tests wait for timeouts; the flag exists
	edge.LogTo(&libraries)
	leaktest.Main(m)
}

// A scriptedChat is a chat-service that answers by the first message's content: "wait 50ms say hello fail peer_lost ...".
type scriptedChat struct {
	chatv1.UnimplementedChatServer
	hop    rpc.Hop
	begun  chan struct{} // a stream has begun
	causes chan error    // the causes of stopped streams
	claim  atomic.Pointer[llmv1.Claim]
	// The last request.
	request atomic.Pointer[chatv1.ChatRequest]
	stop    atomic.Pointer[streamv1.Stop] // of the last unary Stop
	// release ends the wait of the word "hold".
	release chan struct{}
	stays   bool // the chat-service runs until the edge has drained, at the end of the test
}

func (s *scriptedChat) Generate(st grpc.BidiStreamingServer[chatv1.GenerateRequest, chatv1.GenerateResponse]) error {
	return rpc.Serve(&s.hop, st, methods.Chat, stream.Push(s.play))
}

func (s *scriptedChat) Models(context.Context, *chatv1.ModelsRequest) (*chatv1.ModelsResponse, error) {
	return &chatv1.ModelsResponse{Models: []*chatv1.Model{{Id: "org/m"}}}, nil
}

func (s *scriptedChat) Workers(context.Context, *chatv1.WorkersRequest) (*chatv1.WorkersResponse, error) {
	return &chatv1.WorkersResponse{Workers: []*chatv1.Worker{{Target: "h:1", State: chatv1.WorkerState_WORKER_STATE_DOWN}}}, nil
}

// Tokenize counts a token for each word and for each tool.
func (s *scriptedChat) Tokenize(_ context.Context, req *chatv1.TokenizeRequest) (*chatv1.TokenizeResponse, error) {
	n := len(req.GetTools())
	for _, m := range req.GetMessages() {
		n += len(strings.Fields(m.GetContent()))
	}
	return &chatv1.TokenizeResponse{Ids: make([]uint32, n)}, nil
}

func (s *scriptedChat) Stop(ctx context.Context, req *chatv1.StopRequest) (*chatv1.StopResponse, error) {
	s.stop.Store(req.GetStream().GetStop())
	resp, err := s.hop.Stop(ctx, req.GetStream())
	return &chatv1.StopResponse{Stream: resp}, err
}

func (s *scriptedChat) play(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
	return func(yield func(*chatv1.GenerateResponse, error) bool) {
		s.claim.Store(req.GetClaim())
		s.request.Store(req)
		s.begun <- struct{}{}
		stopping := stream.Stopping(ctx)
		words := strings.Fields(script(req))
		for i := 0; i+1 < len(words); i += 2 {
			arg := words[i+1]
			switch words[i] {
			case "wait":
				d, _ := time.ParseDuration(arg)
				select {
				case <-time.After(d):
				case <-stopping:
					s.causes <- stream.Cause(ctx)
					yield(nil, stream.Cause(ctx))
					return
				}
			case "read":
				s.read(ctx, arg)
			case "start", "say", "call", "finish":
				if !yield(item(req, words[i], arg), nil) {
					return
				}
			case "hold":
				select {
				case <-s.release:
				case <-stopping:
					s.causes <- stream.Cause(ctx)
					yield(nil, stream.Cause(ctx))
					return
				}
			case "pour":
				n, _ := strconv.Atoi(arg)
				for range n {
					if !yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: strings.Repeat("x", 1000), Tokens: 1}}}, nil) {
						return
					}
				}
			case "flood":
				for range 1 << 20 {
					if !yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: strings.Repeat(arg, 1000), Tokens: 1}}}, nil) {
						s.causes <- stream.Cause(ctx)
						return
					}
					if cause := stream.Cause(ctx); cause != nil {
						s.causes <- cause
						yield(nil, cause)
						return
					}
				}
			case "fail":
				yield(nil, &streamerr.Error{Reason: streamerr.ParseReason(arg), Message: "as scripted", RetryAfter: 1500 * time.Millisecond})
				return
			case "panic":
				panic(arg)
			case "end":
				yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{
					Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_STOP, Usage: scriptedUsage(arg),
				}}}, nil)
				return
			}
		}
	}
}

// read calls a worker with a prompt, as far as the record of the stream knows. begun receives then.
func (s *scriptedChat) read(ctx context.Context, tokens string) {
	n, _ := strconv.Atoi(tokens)
	ledger.SendsPrompt(ledger.WithPrompt(ctx, &ledger.Prompt{Tokens: n}))
	ledger.Of(ctx).Note(observer.Event{Kind: observer.Calling})
	s.begun <- struct{}{}
}

// item returns the item of a word of a script.
func item(req *chatv1.ChatRequest, word, arg string) *chatv1.GenerateResponse {
	switch word {
	case "start":
		model, prompt, _ := strings.Cut(arg, "/")
		n, _ := strconv.Atoi(prompt)
		return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{StreamId: req.GetStreamId(), Model: model, PromptTokens: uint32(n)}}}
	case "call":
		call := &chatv1.ToolCallDelta{Id: "c", Name: "f", Arguments: arg}
		return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{call}, Tokens: 1}}}
	case "finish":
		n, _ := strconv.Atoi(arg)
		return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_ChoiceEnd{ChoiceEnd: &chatv1.ChoiceEnd{Choice: uint32(n), Finish: llmv1.Finish_FINISH_STOP}}}
	default:
		return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: arg, Tokens: 1}}}
	}
}

// scriptedUsage returns the usage that the argument of the word "end" names, such as "9/4" for a
// prompt of 9 tokens with 4 cached tokens, or nil.
func scriptedUsage(arg string) *llmv1.Usage {
	prompt, cached, ok := strings.Cut(arg, "/")
	if !ok {
		return nil
	}
	n, _ := strconv.Atoi(prompt)
	of, _ := strconv.Atoi(cached)
	return &llmv1.Usage{PromptTokens: uint32(n), CachedTokens: new(uint32(of))}
}

// script returns the first message of a request. A request with a prompt has no messages, and gets
// a fixed script.
func script(req *chatv1.ChatRequest) string {
	if len(req.GetMessages()) == 0 {
		return "start m say one say two end x"
	}
	for _, m := range slices.Backward(req.GetMessages()) { // a conversation may continue with another script
		if word, _, _ := strings.Cut(m.GetContent(), " "); word == "start" || word == "fail" {
			return m.GetContent()
		}
	}
	return req.GetMessages()[0].GetContent()
}

// contents returns the contents of the messages of the last request.
func (s *scriptedChat) contents() (all []string) {
	for _, m := range s.request.Load().GetMessages() {
		all = append(all, m.GetContent())
	}
	return all
}

// start runs an edge in front of a scripted chat-service: over a link if the Config says Link, otherwise over gRPC.
func start(t *testing.T, change func(*edge.Config)) (url string, chat *scriptedChat) {
	t.Helper()
	return startLogging(t, io.Discard, change)
}

func startLogging(t *testing.T, logs io.Writer, change func(*edge.Config)) (url string, chat *scriptedChat) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(logs, nil))
	chat = &scriptedChat{hop: rpc.Hop{Name: "chat-service", Log: log, Observer: &ledger.Ledger{}}, begun: make(chan struct{}, 100), causes: make(chan error, 100), release: make(chan struct{})}
	back, front := listen(t), listen(t)
	c := edge.Config{
		Name: "api-service", Chat: back.Addr().String(), MaxBody: 10000, MaxStreams: 10, ReadTimeout: time.Minute,
		WriteTimeout: time.Minute, HeadersAfter: time.Minute, Grace: time.Second, LeaveEvents: edge.DefaultLeaveEvents,
	}
	if change != nil {
		change(&c)
	}
	type server interface {
		grpc.ServiceRegistrar
		Serve(ln net.Listener) error
		Stop()
	}
	var gs server = grpc.NewServer()
	if c.Link {
		gs = link.NewServer(link.Options{})
		c.Connect = func(addr string) (chats.Conn, error) { return link.NewClient(addr, link.Options{}), nil }
	}
	chatv1.RegisterChatServer(gs, chat)
	inspect.Register(gs, &chat.hop, nil)
	healthpb.RegisterHealthServer(gs, health.NewServer())
	ctx, cancel := context.WithCancel(context.Background())
	var wg, drained sync.WaitGroup
	wg.Go(func() { _ = gs.Serve(back) })
	drained.Go(func() {
		if err := edge.Run(ctx, c, front, log); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if chat.stays {
			drained.Wait()
		}
		gs.Stop()
		drained.Wait()
		wg.Wait()
	})
	return "http://" + front.Addr().String(), chat
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func post(t *testing.T, url, script string, streamed bool) (*http.Response, string) {
	t.Helper()
	body := `{"model":"m","messages":[{"role":"user","content":"` + script + `"}]}`
	if streamed {
		body = strings.TrimSuffix(body, "}") + `,"stream":true}`
	}
	resp, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		b = append(b, "CUT"...)
	}
	return resp, string(b)
}

func TestRefusalHasItsOwnStatus(t *testing.T) {
	url, _ := start(t, nil)
	for reason, want := range map[string]int{
		"invalid": 400, "not_found": 404, "overloaded": 429, "deadline": 504, "draining": 503, "unavailable": 503, "peer_lost": 502,
		"engine_failed": 500, "user_stop": 409, "reason_57": 500,
	} {
		for _, streamed := range []bool{true, false} {
			resp, body := post(t, url, "fail "+reason, streamed)
			if resp.StatusCode != want || resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("Retry-After") != "2" ||
				!strings.Contains(body, `"reason":"`+reason+`"`) || !strings.Contains(body, `"path":["chat-service","api-service"]`) {
				t.Errorf("%s (stream %t): %d %v %s", reason, streamed, resp.StatusCode, resp.Header, body)
			}
			if final, header := reason == "deadline" || reason == "user_stop", resp.Header.Get("X-Should-Retry"); final != (header == "false") {
				t.Errorf("%s: X-Should-Retry is %q", reason, header)
			}
		}
	}
}

func TestFailureInMidStreamIsOneDataLineAndNoDone(t *testing.T) {
	url, _ := start(t, nil)
	for _, how := range []string{"fail peer_lost", "panic oops"} {
		resp, body := post(t, url, "start m say hello "+how, true)
		body, cut := strings.CutSuffix(body, "CUT")
		events := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
		if !cut || resp.StatusCode != http.StatusOK || len(events) != 2 || !strings.HasPrefix(events[1], `data: {"error":{`) || strings.Contains(body, "[DONE]") {
			t.Errorf("%s: %d %q", how, resp.StatusCode, body)
		}
	}
	if resp, body := post(t, url, "start m say hello fail engine_failed", false); resp.StatusCode != http.StatusInternalServerError || strings.Contains(body, "hello") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestEndWithoutEndingIsNoCleanEnd(t *testing.T) {
	url, _ := start(t, nil)
	if _, body := post(t, url, "start m say hello", true); strings.Contains(body, "[DONE]") || !strings.Contains(body, `"reason":"internal"`) {
		t.Error(body)
	}
}

func TestHeadersAreSentAfterATimeout(t *testing.T) {
	url, chat := start(t, func(c *edge.Config) { c.HeadersAfter = 20 * time.Millisecond })
	streamed := func(script string) (status int, body string) {
		resp := ask(t, http.MethodPost, url+"/v1/chat/completions", strings.Replace(asking(script), "{", `{"stream":true,`, 1))
		chat.release <- struct{}{} // the client has the headers
		return resp.StatusCode, whole(t, resp)
	}
	status, body := streamed("hold x fail overloaded")
	if status != http.StatusOK || !strings.HasPrefix(body, ": keep-alive\ndata: {\"error\":") {
		t.Errorf("%d %q", status, body)
	}
	status, body = streamed("hold x start m say hi end x")
	if status != http.StatusOK || !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("%d %q", status, body)
	}
}

func TestClientThatLeavesStopsTheChatService(t *testing.T) {
	url, chat := start(t, nil)
	for name, script := range map[string]string{"before the first byte": "wait 1m", "in mid-stream": "start m say hi wait 1m"} {
		for _, streamed := range []string{"true", "false"} {
			ctx, leave := context.WithCancel(t.Context())
			body := `{"model":"m","stream":` + streamed + `,"messages":[{"role":"user","content":"` + script + `"}]}`
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			answered := make(chan *http.Response, 1)
			go func() {
				resp, _ := http.DefaultClient.Do(req)
				answered <- resp
			}()
			if strings.HasPrefix(script, "start") && streamed == "true" {
				polltest.Receive(t, "the beginning of a stream", chat.begun)
				resp := <-answered
				if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, "assistant") {
					t.Fatal(line, err)
				}
				leave()
				_ = resp.Body.Close()
			} else {
				polltest.Receive(t, "the beginning of a stream", chat.begun)
				leave()
				<-answered
			}
			cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes))
			if cause.Reason != streamerr.ClientGone || cause.Path.String() != "client > api-service" {
				t.Errorf("%s (stream %s): %v", name, streamed, cause)
			}
		}
	}
}

func TestClientThatDoesNotReadIsTooSlow(t *testing.T) {
	t.Parallel()
	url, chat := start(t, func(c *edge.Config) { c.WriteTimeout = 200 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"start m flood x"}]}`
	if _, err := io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body); err != nil {
		t.Fatal(err)
	}
	cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes))
	if cause.Reason != streamerr.SlowReader || cause.Path.String() != "api-service" {
		t.Error(cause)
	}
}

// TestStreamWithALiveIDGetsAnother: ids of clients only correlate requests, so they refuse none.
func TestStreamWithALiveIDGetsAnother(t *testing.T) {
	url, chat := start(t, nil)
	ask := func(ctx context.Context, script string) *http.Response {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions",
			strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"`+script+`"}]}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Request-Id", "mine")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	ctx, leave := context.WithCancel(t.Context())
	first := ask(ctx, "start m wait 1m")
	second := ask(t.Context(), "start m end x")
	id := second.Header.Get("X-Request-Id")
	if body, _ := io.ReadAll(second.Body); first.Header.Get("X-Request-Id") != "mine" || second.StatusCode != http.StatusOK || !strings.HasPrefix(id, "mine-") || !strings.Contains(string(body), id) {
		t.Error(first.Header, second.StatusCode, id, string(body))
	}
	leave()
	polltest.Receive(t, "the cause of the stop", chat.causes)
	_, _ = first.Body.Close(), second.Body.Close()
}

func TestUserStopsAStreamByItsID(t *testing.T) {
	url, chat := start(t, nil)
	for name, stop := range map[string]func(id string) *http.Request{
		"delete": func(id string) *http.Request {
			req, _ := http.NewRequest(http.MethodDelete, url+"/v1/streams/"+id, nil)
			return req
		},
		"abort_request": func(id string) *http.Request {
			req, _ := http.NewRequest(http.MethodPost, url+"/abort_request", strings.NewReader(`{"rid":"`+id+`"}`))
			req.Header.Set("Content-Type", "application/json")
			return req
		},
	} {
		resp, err := http.Post(url+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"start m say hi wait 1m"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		id := resp.Header.Get("X-Request-Id")
		stopped, err := http.DefaultClient.Do(stop(id))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(stopped.Body)
		_ = stopped.Body.Close()
		if stopped.StatusCode != http.StatusAccepted || !strings.Contains(string(body), id) {
			t.Errorf("%s: %d %s", name, stopped.StatusCode, body)
		}
		if cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes)); cause.Reason != streamerr.UserStop || cause.Path.String() != "client > api-service" {
			t.Errorf("%s: %v", name, cause)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if strings.Contains(string(text), "[DONE]") || !strings.Contains(string(text), `"reason":"user_stop"`) || !strings.Contains(string(text), `"path":["client","api-service"]`) {
			t.Errorf("%s: %s", name, text)
		}
		again, err := http.DefaultClient.Do(stop(id))
		if err != nil {
			t.Fatal(err)
		}
		param := map[string]string{"delete": "id", "abort_request": "rid"}[name]
		if body := whole(t, again); again.StatusCode != http.StatusNotFound || !strings.Contains(body, `"param":"`+param+`"`) {
			t.Errorf("%s: stopped twice: %d %s", name, again.StatusCode, body)
		}
	}
}

func TestDeadlineOfARequestComesFromHeaderOrBody(t *testing.T) {
	t.Parallel()
	url, chat := start(t, nil)
	for name, set := range map[string]func(*http.Request) string{
		"body":   func(*http.Request) string { return `,"timeout":0.2` },
		"header": func(req *http.Request) string { req.Header.Set("X-Request-Timeout", "0.2"); return `,"timeout":3600` },
		"tiny":   func(req *http.Request) string { req.Header.Set("X-Request-Timeout", "1e-10"); return "" }, // less than a nanosecond, but not 0
	} {
		req, _ := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", nil)
		req.Header.Set("Content-Type", "application/json")
		body := `{"model":"m","messages":[{"role":"user","content":"wait 1m"}]` + set(req) + `}`
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(string(text), "deadline of api-service") {
			t.Errorf("%s: %d %s", name, resp.StatusCode, text)
		}
		select {
		case <-chat.begun:
		default: // the stream was over before chat-service got it
			continue
		}
		if cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes)); cause.Reason != streamerr.Deadline || cause.Path.String() != "api-service" {
			t.Errorf("%s: %v", name, cause)
		}
	}
	req, _ := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]}`))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Timeout", "soon")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Error(resp.StatusCode)
	}
}

// TestProbesOfOtherServersAreAnswered covers the paths that load tools, routers and health checks of
// vLLM and SGLang ask for.
func TestProbesOfOtherServersAreAnswered(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.OperatorKey = "secret" })
	for _, path := range []string{"/health", "/ping", "/version", "/v1/models", "/v1/models/", "/v1/models/org/m", "/model_info", "/get_model_info"} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			want := http.StatusOK
			if path == "/health" || path == "/ping" {
				want = ask(t, method, url+"/readyz", "").StatusCode
			}
			resp := ask(t, method, url+path, "")
			if body := whole(t, resp); resp.StatusCode != want || method == http.MethodHead && body != "" || path == "/v1/models/" && method == http.MethodGet && !strings.Contains(body, `"object":"list"`) {
				t.Errorf("%s %s: %d %q", method, path, resp.StatusCode, body)
			}
		}
	}
}

// TestHTTP2WithoutNegotiationIsToldAtOnce: the client learns in its own protocol what to speak.
func TestHTTP2WithoutNegotiationIsToldAtOnce(t *testing.T) {
	url, _ := start(t, nil)
	conn, _ := connect(t, url)
	sendText(t, conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	frames := http2.NewFramer(io.Discard, conn)
	if f, err := frames.ReadFrame(); err != nil || f.Header().Type != http2.FrameSettings {
		t.Fatal(f, err)
	}
	f, err := frames.ReadFrame()
	if away, ok := f.(*http2.GoAwayFrame); err != nil || !ok || away.ErrCode != http2.ErrCodeHTTP11Required || !strings.Contains(string(away.DebugData()), "HTTP/1.1") {
		t.Fatal(f, err)
	}
}

// TestRefusedMethodListsTheAllowedMethods checks that a 405 lists the methods of its route, each once.
func TestRefusedMethodListsTheAllowedMethods(t *testing.T) {
	url, _ := start(t, nil)
	for path, want := range map[string]string{
		"/": "GET, HEAD", "/v1/streams": "GET, POST", "/v1/streams/x": "DELETE, GET", "/v1/streams/x/events": "GET", "/v1/streams/x/token": "POST",
		"/v1/models/org/m": "GET, HEAD", "/v1/chat/completions": "POST",
	} {
		resp := ask(t, http.MethodPut, url+path, "{}")
		body := whole(t, resp)
		got := strings.Split(strings.Join(resp.Header.Values("Allow"), ", "), ", ")
		slices.Sort(got)
		if resp.StatusCode != http.StatusMethodNotAllowed || strings.Join(got, ", ") != want {
			t.Errorf("%s: %d %q %s", path, resp.StatusCode, got, body)
		}
	}
}

// TestBaseURLsOfClients: a path may end in a slash, and a base URL with /v1 too many or too few is told.
func TestBaseURLsOfClients(t *testing.T) {
	url, _ := start(t, nil)
	resp := ask(t, http.MethodPost, url+"/v1/chat/completions/", asking("start m say x end x"))
	if body := whole(t, resp); resp.StatusCode != http.StatusOK {
		t.Error(resp.StatusCode, body)
	}
	for path, meant := range map[string]string{
		"/chat/completions": "/v1/chat/completions", "/models": "/v1/models", "/v1/v1/messages": "/v1/messages", "/v1/api/chat": "/api/chat", "/v1/nowhere": "", "/nowhere": "",
	} {
		resp := ask(t, http.MethodGet, url+path, "")
		if body := whole(t, resp); resp.StatusCode != http.StatusNotFound || (meant != "") != strings.Contains(body, "but there is "+meant) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

func TestModelsAndHealth(t *testing.T) {
	url, _ := start(t, nil)
	for path, want := range map[string]int{
		"/v1/models": 200, "/v1/models/org/m": 200, "/v1/models/nope": 404, "/healthz": 200, "/readyz": 503, "/": 200, "/assets/app.js": 200, "/favicon.ico": 200, "/nope": 404,
	} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, change := range map[string]func(*edge.Config){
		"body":    func(c *edge.Config) { c.MaxBody = 1 << 30 },
		"streams": func(c *edge.Config) { c.MaxStreams = 0 },
		"timeout": func(c *edge.Config) { c.ReadTimeout = 0 },
		"chat":    func(c *edge.Config) { c.Chat = "nowhere" },
		"origin":  func(c *edge.Config) { c.Origins = []string{"*"} },
		"host":    func(c *edge.Config) { c.Hosts = []string{"http://x"} },
		"redis":   func(c *edge.Config) { c.Redis, c.TokenKey = "localhost", "k" },
		"token":   func(c *edge.Config) { c.Redis = "redis://h:1/0" },
		"silence": func(c *edge.Config) { c.KeepAlive = -1 },
		"blank":   func(c *edge.Config) { c.OperatorKey = " \t" },
		"replay":  func(c *edge.Config) { c.Replay.TTL = -1 },
	} {
		c := edge.Config{Chat: "h:1", MaxBody: 1, MaxStreams: 1, ReadTimeout: 1, WriteTimeout: 1, HeadersAfter: 1}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		if change(&c); c.Validate() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

package openai_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// status answers with a status and a body.
func status(code int, body string, headers ...string) script {
	return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// events answers with events, and closes the response cleanly.
func events(data ...string) script {
	return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { say(w, data...) }
}

// raw answers with a body whose Content-Type is that of a stream.
func raw(body string) script { return status(http.StatusOK, body, "Content-Type", "text/event-stream") }

// thenCut answers with events, and then closes the connection in the middle of the response. If reset is not
// nil, it waits for reset and then resets the connection.
func thenCut(reset <-chan struct{}, data ...string) script {
	return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		say(w, data...)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		if reset != nil {
			<-reset // a reset discards what the client has not read
			_ = conn.(*net.TCPConn).SetLinger(0)
		}
		_ = conn.Close()
	}
}

// endless answers with a line without an end.
func endless(w http.ResponseWriter, r *http.Request, _ map[string]any) {
	w.Header().Set("Content-Type", "text/event-stream")
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, strings.Repeat("data: x", 10000)); err != nil {
			return
		}
	}
}

// many answers with one event of lines without an end.
func many(w http.ResponseWriter, r *http.Request, _ map[string]any) {
	w.Header().Set("Content-Type", "text/event-stream")
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, strings.Repeat("data: x\n", 10000)); err != nil {
			return
		}
	}
}

func TestEveryFailureOfAServerHasItsEnding(t *testing.T) {
	const html = "<!DOCTYPE html><html><body>It works!</body></html>"
	for name, test := range map[string]struct {
		answer script
		reason streamerr.Reason
		tokens int    // before it
		says   string // in the message
	}{
		"closes at once":                    {raw(""), streamerr.PeerLost, 0, "without an ending"},
		"closes in mid-answer":              {events(ids(100)), streamerr.PeerLost, 1, "without an ending"},
		"[DONE] without finish_reason":      {events(ids(100), "[DONE]"), streamerr.PeerLost, 1, "finish_reason"},
		"[DONE] alone":                      {events("[DONE]"), streamerr.PeerLost, 0, "finish_reason"},
		"closes in the middle of a line":    {raw("data: " + ids(100) + "\n\ndata: [DO"), streamerr.PeerLost, 1, "without an ending"},
		"breaks the connection":             {thenCut(nil, ids(100)), streamerr.PeerLost, 1, "broke the connection"},
		"error object":                      {events(ids(100), `{"error":{"message":"CUDA out of memory","type":"server_error","code":500}}`, "[DONE]"), streamerr.EngineFailed, 1, "CUDA out of memory"},
		"error text":                        {events(`{"error":"no slot"}`), streamerr.EngineFailed, 0, "no slot"},
		"error of older servers":            {events(`{"object":"error","message":"too bad","code":400}`), streamerr.Invalid, 0, "too bad"},
		"error in a field of its own":       {raw("error: {\"code\":500,\"error\":\"dead\"}\n\n"), streamerr.EngineFailed, 0, "dead"},
		"aborted":                           {events(ids(100), finish("abort"), "[DONE]"), streamerr.PeerLost, 1, `"abort"`},
		"unknown finish_reason":             {events(ids(100), finish("function_call"), "[DONE]"), streamerr.EngineFailed, 1, `"function_call"`},
		"goes on behind its finish_reason":  {events(ids(100), finish("stop"), ids(101)), streamerr.EngineFailed, 1, "continues"},
		"a page":                            {status(200, html, "Content-Type", "text/html"), streamerr.EngineFailed, 0, "It works!"},
		"a page that calls itself a stream": {raw(html), streamerr.EngineFailed, 0, "an invalid answer"},
		"an answer that is no stream":       {status(200, `{"choices":[{"text":"hello"}]}`, "Content-Type", "application/json"), streamerr.EngineFailed, 0, "no stream"},
		"an error with status 200":          {status(200, `{"error":{"message":"busy"}}`, "Content-Type", "application/json"), streamerr.EngineFailed, 0, "busy"},
		"no JSON":                           {events(ids(100), "hello"), streamerr.EngineFailed, 1, "an invalid answer"},
		"JSON of a wrong type":              {events(`[1,2]`), streamerr.EngineFailed, 0, "an invalid answer"},
		"JSON of wrong types within":        {events(`{"choices":[{"text":7}]}`), streamerr.EngineFailed, 0, "an invalid answer"},
		"JSON about something else":         {events(`{"hello":"world"}`), streamerr.EngineFailed, 0, "neither choices nor usage"},
		"negative usage":                    {events(ids(100), `{"choices":[],"usage":{"prompt_tokens":-1}}`), streamerr.EngineFailed, 1, "an invalid answer"},
		"two choices":                       {events(`{"choices":[{"text":"a"},{"text":"b"}]}`), streamerr.EngineFailed, 0, "2 choices"},
		"a token that the model has not":    {events(ids(1 << 20)), streamerr.EngineFailed, 0, "vocabulary"},
		"a negative token":                  {events(ids(-1)), streamerr.EngineFailed, 0, "an invalid answer"},
		"an endless line":                   {endless, streamerr.EngineFailed, 0, "bytes"},
		"an endless event":                  {many, streamerr.EngineFailed, 0, "bytes"},
		"status 400":                        {status(400, `{"error":{"message":"too long, by far"}}`), streamerr.Invalid, 0, "too long, by far"},
		"status 400 of older vLLM":          {status(400, `{"object":"error","message":"too long, by far"}`), streamerr.Invalid, 0, "too long, by far"},
		"status 422 of FastAPI":             {status(422, `{"detail":[{"loc":["body","prompt"],"msg":"too long"}]}`), streamerr.Invalid, 0, "too long"},
		"status 400 with a page":            {status(400, html), streamerr.Invalid, 0, "It works!"},
		"status 401":                        {status(401, `{"error":{"message":"Incorrect key: sk-1234"}}`), streamerr.EngineFailed, 0, "--upstream-key"},
		"status 402":                        {status(402, `{"error":{"message":"Insufficient credits"}}`), streamerr.EngineFailed, 0, "Insufficient credits"},
		"status 403 about the key":          {status(403, `{"error":{"message":"The API key sk-1234 may not use this model"}}`), streamerr.EngineFailed, 0, "--upstream-key"},
		"status 403 about permission":       {status(403, `{"error":{"message":"no sk-1234","type":"PermissionDeniedError"}}`), streamerr.EngineFailed, 0, "--upstream-key"},
		"status 403 for content":            {status(403, `{"error":{"message":"Your input was flagged for \"violence\"; keywords: monkey","code":403}}`), streamerr.Invalid, 0, "flagged"},
		"status 403 without a reason":       {status(403, ``), streamerr.Invalid, 0, "no reason"},
		"status 404":                        {status(404, `{"error":{"message":"no model m"}}`), streamerr.NotFound, 0, "no model m"},
		"status 408":                        {status(408, ``), streamerr.Deadline, 0, "408"},
		"status 504":                        {status(504, ``), streamerr.Deadline, 0, "504"},
		"status 429":                        {status(429, `{"error":{"message":"later"}}`, "Retry-After", "7"), streamerr.Overloaded, 0, "later"},
		"status 500":                        {status(500, `{"error":{"message":"boom"}}`), streamerr.EngineFailed, 0, "boom"},
		"status 502":                        {status(502, html), streamerr.Unavailable, 0, "502"},
		"status 503":                        {status(503, `{"error":{"message":"Loading model"}}`), streamerr.Unavailable, 0, "Loading model"},
		"a redirect":                        {status(307, ``, "Location", "http://127.0.0.1:1/v1/completions"), streamerr.EngineFailed, 0, "307"},
		"status 418":                        {status(418, `teapot`), streamerr.Invalid, 0, "teapot"},
		"status 407":                        {status(407, `proxy`), streamerr.EngineFailed, 0, "proxy"},
		"status 425":                        {status(425, `early`), streamerr.EngineFailed, 0, "early"},
		"status 451":                        {status(451, `{"error":{"message":"not in this country"}}`), streamerr.Invalid, 0, "country"},
		"closes before it answers":          {func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { panic(http.ErrAbortHandler) }, streamerr.Unavailable, 0, "broke the connection before it answered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, test.answer)
			r := read(t.Context(), engineOn(t, f.URL), request(100), nil)
			e := streamerr.As(r.err)
			if r.err == nil || e.Reason != test.reason || e.Path.String() != "engine" || !strings.Contains(e.Message, test.says) {
				t.Errorf("got %v, want %s with %q", r.err, test.reason, test.says)
			}
			if len(r.tokens) != test.tokens || int(r.record.GetTokensIn()) != test.tokens || r.end != nil {
				t.Error(r.tokens, r.record, r.end)
			}
			if len(e.Message) > 700 || strings.Contains(e.Message, "sk-1234") {
				t.Error(e.Message)
			}
		})
	}
}

func TestServerThatResetsTheConnectionIsLost(t *testing.T) {
	taken := make(chan struct{})
	f := newFake(t, thenCut(taken, ids(100)))
	r := read(t.Context(), engineOn(t, f.URL), request(100), func(r *result) {
		if len(r.tokens) == 1 {
			close(taken)
		}
	})
	if e := streamerr.As(r.err); e.Reason != streamerr.PeerLost || e.Path.String() != "engine" || len(r.tokens) != 1 {
		t.Error(r.tokens, r.err)
	}
}

func TestCompleteAnswersHaveTheirFinish(t *testing.T) {
	for name, test := range map[string]struct {
		answer script
		finish llmv1.Finish
	}{
		"stop":                                {events(ids(100), finish("stop"), "[DONE]"), llmv1.Finish_FINISH_STOP},
		"length":                              {events(ids(100), finish("length"), "[DONE]"), llmv1.Finish_FINISH_LENGTH},
		"with CRLF and comments":              {raw(": hello\r\n\r\ndata: " + ids(100) + "\r\n\r\n: ping\r\nevent: x\r\nid: 1\r\ndata:" + finish("stop") + "\r\n\r\ndata: [DONE]\r\n\r\n"), llmv1.Finish_FINISH_STOP},
		"an event over several data":          {raw("data: " + ids(100) + "\n\ndata: {\"choices\":\ndata: [{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"), llmv1.Finish_FINISH_STOP},
		"[DONE] with one line end":            {raw("data: " + ids(100) + "\n\ndata: " + finish("stop") + "\n\ndata: [DONE]\n"), llmv1.Finish_FINISH_STOP},
		"an event of 100 kB":                  {events(ids(100), `{"choices":[{"text":"`+strings.Repeat(" ", 100_000)+`","finish_reason":"stop"}]}`, "[DONE]"), llmv1.Finish_FINISH_STOP},
		"closed without [DONE]":               {events(ids(100), finish("stop")), llmv1.Finish_FINISH_STOP},
		"closed behind usage, without [DONE]": {events(ids(100), finish("length"), usageOf(1)), llmv1.Finish_FINISH_LENGTH},
		"cut behind its finish_reason":        {thenCut(nil, ids(100), finish("stop")), llmv1.Finish_FINISH_STOP},
		"cut within [DONE]":                   {status(200, "data: "+ids(100)+"\n\ndata: "+finish("stop")+"\n\ndata: [DO", "Content-Type", "text/event-stream", "Content-Length", "500"), llmv1.Finish_FINISH_STOP},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, test.answer)
			r := read(t.Context(), engineOn(t, f.URL), request(100), nil)
			if r.err != nil || r.end.GetFinish() != test.finish || len(r.tokens) != 1 || r.end.GetPath()[0] != "engine" {
				t.Error(r.tokens, r.end, r.err)
			}
		})
	}
}

func usageOf(completion int) string {
	return fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":%d}}`, completion)
}

// TestDoneAfterAllTokensMeansLength covers a server that omits the finish chunk after it has sent all requested tokens.
func TestDoneAfterAllTokensMeansLength(t *testing.T) {
	model := tinyModel(t)
	eos := int(model.EOS[0])
	for name, test := range map[string]struct {
		answer script
		finish llmv1.Finish
		tokens int
	}{
		"all tokens":                         {events(ids(100), ids(101, 102), "[DONE]"), llmv1.Finish_FINISH_LENGTH, 3},
		"all tokens, and their number":       {events(ids(100), ids(101, 102), usageOf(3), "[DONE]"), llmv1.Finish_FINISH_LENGTH, 3},
		"the last one ends the answer":       {events(ids(100, 101), ids(eos), "[DONE]"), llmv1.Finish_FINISH_STOP, 2},
		"text, and its number of tokens":     {events(text("a b c"), usageOf(3), "[DONE]"), llmv1.Finish_FINISH_LENGTH, -1},
		"text that nobody has counted":       {events(text("a b c"), "[DONE]"), 0, -1},
		"fewer tokens":                       {events(ids(100, 101), "[DONE]"), 0, 2},
		"all tokens, and the server says no": {events(ids(100, 101, 102), usageOf(2), "[DONE]"), 0, 3},
		"all tokens, and then silence":       {events(ids(100, 101, 102)), 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, test.answer)
			r := read(t.Context(), engineOn(t, f.URL), request(3), nil)
			if r.end.GetFinish() != test.finish || test.tokens >= 0 && len(r.tokens) != test.tokens {
				t.Error(r.tokens, r.end, r.err)
			}
			if test.finish == 0 && !errors.Is(r.err, streamerr.PeerLost) || test.finish != 0 && r.end.GetUsage().GetCompletionTokens() != 3 {
				t.Error(r.end, r.err)
			}
		})
	}
}

// TestErrorsInTheStreamDecideTheReason covers errors that a server sends after status 200.
func TestErrorsInTheStreamDecideTheReason(t *testing.T) {
	vllm := `{"error":{"message":"because","type":"%s","param":null,"code":%s}}`
	for name, test := range map[string]struct {
		answer script
		reason streamerr.Reason
		code   string
		after  time.Duration
	}{
		"vLLM's dead engine":        {events(ids(100), fmt.Sprintf(vllm, "InternalServerError", "500")), streamerr.EngineFailed, "", 0},
		"vLLM's bad request":        {events(ids(100), fmt.Sprintf(vllm, "BadRequestError", "400")), streamerr.Invalid, "", 0},
		"a number as text":          {events(ids(100), fmt.Sprintf(vllm, "x", `"429"`)), streamerr.Overloaded, "", time.Second},
		"unavailable":               {events(ids(100), fmt.Sprintf(vllm, "x", "503")), streamerr.Unavailable, "", time.Second},
		"no such model":             {events(ids(100), fmt.Sprintf(vllm, "NotFoundError", "404")), streamerr.NotFound, "", 0},
		"a type alone":              {events(ids(100), fmt.Sprintf(vllm, "BadRequestError", "null")), streamerr.Invalid, "", 0},
		"OpenAI's rate limit":       {events(ids(100), fmt.Sprintf(vllm, "requests", `"rate_limit_exceeded"`)), streamerr.Overloaded, "rate_limit_exceeded", time.Second},
		"OpenAI's quota":            {events(ids(100), fmt.Sprintf(vllm, "insufficient_quota", `"insufficient_quota"`)), streamerr.Overloaded, "insufficient_quota", time.Second},
		"OpenAI's context":          {events(ids(100), fmt.Sprintf(vllm, "invalid_request_error", `"context_length_exceeded"`)), streamerr.Invalid, "context_length_exceeded", 0},
		"OpenAI's server error":     {events(ids(100), fmt.Sprintf(vllm, "server_error", `"server_error"`)), streamerr.EngineFailed, "server_error", 0},
		"a code that is no word":    {events(ids(100), fmt.Sprintf(vllm, "x", `"a b <c>"`)), streamerr.EngineFailed, "", 0},
		"SGLang's, on the top":      {events(ids(100), `{"object":"error","message":"because","type":"BadRequest","param":null,"code":400}`), streamerr.Invalid, "", 0},
		"SGLang's, twice":           {events(ids(100), `{"error":{"object":"error","message":"because","type":"InternalServerError","code":503}}`), streamerr.Unavailable, "", time.Second},
		"llama.cpp's context":       {events(ids(100), fmt.Sprintf(vllm, "exceed_context_size_error", "400")), streamerr.Invalid, "context_length_exceeded", 0},
		"when to try again":         {events(ids(100), `{"error":{"message":"because","code":429,"retry_after":7}}`), streamerr.Overloaded, "", 7 * time.Second},
		"when to try again, a text": {events(ids(100), `{"error":{"message":"because","code":503},"retry_after":"9"}`), streamerr.Unavailable, "", 9 * time.Second},
		"never again":               {events(ids(100), `{"error":{"message":"because","code":503,"retry_after":1e300}}`), streamerr.Unavailable, "", time.Hour},
		"an event named error":      {raw("data: " + ids(100) + "\n\nevent: error\ndata: {\"message\":\"because\",\"code\":429}\n\n"), streamerr.Overloaded, "", time.Second},
		"Anthropic's form":          {raw("data: " + ids(100) + "\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"because\"}}\n\n"), streamerr.Unavailable, "", time.Second},
		"an error without data":     {raw("data: " + ids(100) + "\n\nevent: error\n: because\n\n"), streamerr.EngineFailed, "", 0},
		"a field named error":       {raw("data: " + ids(100) + "\n\nerror: {\"code\":503,\"message\":\"because\"}\n\n"), streamerr.Unavailable, "", time.Second},
		"content that is refused":   {events(ids(100), fmt.Sprintf(vllm, "x", "403")), streamerr.Invalid, "", 0},
		"a status of 200":           {events(ids(100), fmt.Sprintf(vllm, "x", "200")), streamerr.EngineFailed, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, test.answer)
			r := read(t.Context(), engineOn(t, f.URL), request(100), nil)
			e := streamerr.As(r.err)
			if e.Reason != test.reason || e.Code != test.code || e.RetryAfter != test.after || !strings.Contains(e.Message, "because") || e.Path.String() != "engine" {
				t.Errorf("got %v with code %q and Retry-After %v, want %s, %q, %v", r.err, e.Code, e.RetryAfter, test.reason, test.code, test.after)
			}
			if len(r.tokens) != 1 || r.end != nil {
				t.Error(r.tokens, r.end)
			}
		})
	}
}

func TestErrorsAboutTheKeyAreHiddenFromClients(t *testing.T) {
	for _, answer := range []script{
		events(`{"error":{"message":"Incorrect key: sk-1234","type":"invalid_request_error","code":"invalid_api_key"}}`),
		events(`{"error":{"message":"Incorrect key: sk-1234","code":401}}`),
		events(`{"error":{"message":"Incorrect key: sk-1234","code":403}}`),
		status(401, `{"error":{"message":"Incorrect key: sk-1234","code":"invalid_api_key"}}`),
		status(403, `{"error":{"message":"sk-1234 is unknown","code":"invalid_api_key"}}`),
		status(403, `{"error":{"message":"User sk-1234 is not authorized"}}`),
	} {
		f := newFake(t, answer)
		e := streamerr.As(read(t.Context(), engineOn(t, f.URL), request(100), nil).err)
		if e.Reason != streamerr.EngineFailed || e.Code != "" || strings.Contains(e.Message, "sk-1234") || !strings.Contains(e.Message, "--upstream-key") {
			t.Errorf("%v, code %q", e, e.Code)
		}
	}
}

func TestRefusalKeepsTheCodeOfItsServer(t *testing.T) {
	for code, test := range map[string]struct {
		status int
		reason streamerr.Reason
	}{"context_length_exceeded": {400, streamerr.Invalid}, "insufficient_quota": {429, streamerr.Overloaded}, "rate_limit_exceeded": {500, streamerr.EngineFailed}} {
		f := newFake(t, status(test.status, `{"error":{"message":"because","type":"x","code":"`+code+`"}}`))
		e := streamerr.As(read(t.Context(), engineOn(t, f.URL), request(100), nil).err)
		if e.Reason != test.reason || e.Code != code {
			t.Errorf("status %d: %v, code %q; want %s, %q", test.status, e, e.Code, test.reason, code)
		}
	}
}

func TestRetryAfterIsPassedOnWithinBounds(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"7": 7 * time.Second, "": time.Second, "0": time.Second, "soon": time.Second, "-3": time.Second, "999999999": time.Hour,
		time.Now().Add(time.Minute).UTC().Format(http.TimeFormat): 50 * time.Second, // at least
	} {
		f := newFake(t, status(429, "", "Retry-After", header))
		e := streamerr.As(read(t.Context(), engineOn(t, f.URL), request(100), nil).err)
		if e.RetryAfter < want || e.RetryAfter > want+11*time.Second {
			t.Errorf("%q: %v, not %v", header, e.RetryAfter, want)
		}
	}
}

func TestServerThatIsGoneIsUnavailable(t *testing.T) {
	f := newFake(t, counting)
	e := engineOn(t, f.URL)
	f.Close()
	for range 2 { // the first stream finds out, the second one is refused
		r := read(t.Context(), e, request(5), nil)
		if err := streamerr.As(r.err); err.Reason != streamerr.Unavailable || err.Path.String() != "engine" || err.RetryAfter == 0 || r.started != nil {
			t.Error(r.err)
		}
		polltest.Eventually(t, "the engine knows", func() bool { _, can := e.Info(); return can == nil })
	}
}

func TestErrorBodyIsReadForALimitedTime(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "because")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	r := read(t.Context(), engineOn(t, f.URL), request(100), nil)
	if e := streamerr.As(r.err); e.Reason != streamerr.Invalid || !strings.Contains(e.Message, "because") {
		t.Error(r.err)
	}
}

func TestFirstEventMayRepeatALongPrompt(t *testing.T) {
	model := tinyModel(t)
	long := request(100)
	long.Prompt = slices.Repeat([]uint32{123456}, 200_000)
	b, err := json.Marshal(long.GetPrompt())
	if err != nil {
		t.Fatal(err)
	}
	body := "data: {\"choices\":[{\"text\":\"\",\"prompt_token_ids\":" + string(b) + ",\"token_ids\":[100]}]}\n\ndata: " + finish("stop") + "\n\ndata: [DONE]\n\n"
	if ids, _, err := openai.Answer(model, long, strings.NewReader(body)); err != nil || len(ids) != 1 {
		t.Error(ids, err)
	}
	if _, _, err := openai.Answer(model, request(100), strings.NewReader(body)); !errors.Is(err, streamerr.EngineFailed) {
		t.Error("a short one may not:", err)
	}
}

func FuzzAnswerEndsOnce(f *testing.F) {
	for _, body := range []string{
		"data: " + ids(100) + "\n\ndata: " + finish("stop") + "\n\ndata: [DONE]\n\n",
		"data: " + text("hi") + "\n\ndata: " + finish("length") + "\n\ndata: [DONE]\n\n",
		"data: {\"choices\":[{\"text\":\"\\ud83d\"}]}\n\ndata: {\"choices\":[{\"text\":\"\\ude80\xf0\"}]}\n\n",
		"error: {}\n\n", ": x\n\n", "data: {\"error\":1}\n", fmt.Sprintf("data: %s\r\n\r\n", ids(1, 2, 3)),
	} {
		f.Add([]byte(body))
	}
	model := tinyModel(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		got, end, err := openai.Answer(model, request(100), bytes.NewReader(body))
		if (end == nil) == (err == nil) {
			t.Errorf("%v and %v", end, err)
		}
		if err != nil {
			e := streamerr.As(err)
			if e.Reason == streamerr.Internal || e.Reason == streamerr.Unspecified || e.Path.String() != "engine" || e.Code != streamerr.CleanCode(e.Code) {
				t.Error(err)
			}
		} else if !bytes.Contains(body, []byte("[DONE]")) && !bytes.Contains(bytes.ToLower(body), []byte("finish_reason")) {
			t.Error("completed without [DONE] and without a finish_reason")
		}
		for _, id := range got {
			if int(id) >= model.VocabSize {
				t.Error(id)
			}
		}
	})
}

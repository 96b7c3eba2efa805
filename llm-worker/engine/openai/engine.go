// Package openai is an engine that lets an OpenAI-compatible server beside the worker generate: vLLM, SGLang, llama.cpp's or
// Ollama. Nothing that they do makes a stream end otherwise than once, with a typed ending.
//
// Generate is a stream.Engine over token ids. It asks POST /v1/completions, each request on a connection of its own, with
// the prompt as ids where the server takes them, else as text that has exactly these ids. Answers are the server's token
// ids where it gives them; else its text is spelled in ids that decode to it (tokenizer.Speller). Info says which it is.
//
// An answer is complete only if a finish_reason of stop or length and [DONE] have come. Whatever else ends the response is
// a failure with the origin "engine": PEER_LOST if it just ends, ENGINE_FAILED if it cannot be understood, and what the
// status says if there is no answer at all. A stream that is stopped closes its connection, which is how these servers are
// told to abort; when Generate yields the cause, it is closed.
//
// Nothing is queued here. A stream reads on only when its reader has taken what came, so a slow reader is felt by the
// server through TCP. Streams, events, headers and messages are bounded. A server that hangs is ended by the worker's timers.
package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// What an upstream may be given for a prompt.
const (
	PromptAuto = "auto" // ids if it takes them
	PromptIDs  = "ids"
	PromptText = "text"
)

// Options say which server to ask, and how.
type Options struct {
	Upstream string // its URL, such as http://127.0.0.1:8000, with or without /v1
	Model    string // what it calls the model; "" is the first of its list
	Key      string // sent as a bearer token if not ""
	Prompt   string // PromptAuto, as is "", PromptIDs or PromptText
	Name     string // what Started calls the model
	// MaxRunning is how many streams, and so connections, there are at most; further ones are refused with OVERLOADED. The
	// server may let some of them wait.
	MaxRunning int
	// Log gets what is no single stream's ending.
	Log *slog.Logger
}

// Validate reports what is wrong with o, by the names of flags.
func (o *Options) Validate() error {
	u, err := url.Parse(o.Upstream)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("--upstream is %.64q; it must be a URL such as http://127.0.0.1:8000", o.Upstream)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("--upstream must be a host, a port and perhaps a path; a key belongs into --upstream-key")
	case strings.ContainsFunc(o.Key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("--upstream-key holds a space or a character that no HTTP header can")
	case o.Prompt != "" && o.Prompt != PromptAuto && o.Prompt != PromptIDs && o.Prompt != PromptText:
		return fmt.Errorf("--upstream-prompt is %.64q; it must be %s, %s or %s", o.Prompt, PromptAuto, PromptIDs, PromptText)
	}
	return nil
}

// An Engine lets an upstream generate. Generate works while Watch finds the upstream well.
type Engine struct {
	model    *Model
	opts     Options
	base     string // of URLs, without /v1
	client   *http.Client
	doubt    chan struct{}            // capacity 1: a stream's ending says that the upstream should be asked now
	upstream atomic.Pointer[upstream] // nil while it does not answer
	running  atomic.Int64
}

// New returns an engine of model; the options must be valid.
func New(model *Model, opts Options) *Engine {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	base := strings.TrimSuffix(strings.TrimSuffix(opts.Upstream, "/"), "/v1")
	return &Engine{model: model, opts: opts, base: strings.TrimSuffix(base, "/"), client: newClient(), doubt: make(chan struct{}, 1)}
}

// Load is how busy the engine is. The server knows which of its streams wait; it is not asked.
func (e *Engine) Load() *workerv1.Load {
	return &workerv1.Load{Running: uint32(e.running.Load()), MaxRunning: uint32(e.opts.MaxRunning)}
}

// Generate is a stream.Engine. Started comes with the head of the server's response, which some send only with their first
// token; Tokens as the server sends them; then End. When the loop is left, the connection is closed.
func (e *Engine) Generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		if cause := stream.Cause(ctx); cause != nil {
			yield(nil, cause)
			return
		}
		if n := e.running.Add(1); n > int64(e.opts.MaxRunning) {
			e.running.Add(-1)
			err := streamerr.New(streamerr.Overloaded, "%d streams run; no more are taken", e.opts.MaxRunning)
			err.RetryAfter = retryAfter
			yield(nil, err)
			return
		}
		defer e.running.Add(-1)
		if err := e.generate(ctx, req, func(out *workerv1.GenerateResponse) bool { return yield(out, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

// generate yields everything but the error. A reader that leaves is no error.
func (e *Engine) generate(ctx context.Context, req *workerv1.TokenRequest, yield func(*workerv1.GenerateResponse) bool) error {
	up := e.upstream.Load()
	if up == nil {
		return unavailable(nil)
	}
	body, err := e.body(up, req)
	if err != nil {
		return err
	}
	answer, err := newAnswer(e.model, req)
	if err != nil {
		return err
	}
	w, callCtx := newWire(ctx)
	stopped := make(chan struct{})
	undo := stream.AfterStop(ctx, func(error) {
		w.hangUp()
		close(stopped)
	})
	record := ledger.Of(ctx)
	defer func() {
		w.hangUp()
		record.Confirmed() // if it was stopped
		if !undo() {
			<-stopped
		}
	}()
	left, err := e.read(callCtx, body, func(resp *http.Response) (bool, error) {
		started := &streamv1.Started{StreamId: stream.ID(ctx), Model: e.opts.Name, PromptTokens: uint32(len(req.GetPrompt()))}
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: started}}) {
			return true, nil
		}
		return answer.pass(ctx, newEvents(resp.Body, len(req.GetPrompt())), yield)
	})
	switch cause := stream.Cause(ctx); {
	case left:
		return nil
	case cause != nil && err != nil: // whatever the connection made of it
		return cause
	case err != nil:
		e.suspect(err)
		return err
	}
	// The server has ended its answer, and is gone before the reader hears of it.
	w.hangUp()
	end := answer.end()
	record.In(answer.unseen(end))
	yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: end}})
	return nil
}

// read asks the upstream and, if it answers with a stream, has pass take it. left says that the reader has left.
func (e *Engine) read(ctx context.Context, body []byte, pass func(*http.Response) (left bool, err error)) (left bool, err error) {
	resp, err := e.ask(ctx, http.MethodPost, "/v1/completions", body)
	if err != nil {
		return false, unavailable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK || !isEvents(resp) {
		return false, e.refused(resp)
	}
	return pass(resp)
}

func isEvents(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}

// refused reads why a response is no stream, but not for ever.
func (e *Engine) refused(resp *http.Response) *streamerr.Error {
	defer closeAfter(resp.Body, patience)()
	return refused(resp)
}

// ask sends a request.
func (e *Engine) ask(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, e.base+path, reader)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if e.opts.Key != "" {
		req.Header.Set("Authorization", "Bearer "+e.opts.Key)
	}
	if id := stream.ID(ctx); id != "" {
		req.Header.Set("X-Request-Id", id) // vLLM's log and ids have it, too
	}
	ledger.Parent(ctx).Each(req.Header.Set)
	return e.client.Do(req)
}

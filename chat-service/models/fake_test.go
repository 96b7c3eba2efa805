package models

import (
	"context"
	"io/fs"
	"iter"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/inspect"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

// A worker repeats the same token, one each millisecond, up to max_tokens.
type worker struct {
	workerv1.UnimplementedWorkerServer
	info llmv1.WorkerInfo
	hop  rpc.Hop
	addr string
	live atomic.Int32

	described atomic.Int32                          // requests for info
	embedded  atomic.Pointer[workerv1.EmbedRequest] // the last one

	mu    sync.Mutex // guards the following fields
	asked []*workerv1.TokenRequest
}

// Embed answers with a vector for each text.
func (w *worker) Embed(_ context.Context, req *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	w.embedded.Store(req)
	out := &workerv1.EmbedResponse{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{w.hop.Name}}}
	for range req.GetInputs() {
		out.Embeddings = append(out.Embeddings, &llmv1.Embedding{Values: []float32{1}})
	}
	return out, nil
}

func (w *worker) Info(context.Context, *workerv1.InfoRequest) (*llmv1.WorkerInfo, error) {
	w.described.Add(1)
	return &w.info, nil
}

func (w *worker) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	return rpc.Serve(&w.hop, st, methods.Worker, stream.Push(w.generate))
}

func (w *worker) generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	w.mu.Lock()
	w.asked = append(w.asked, req)
	w.mu.Unlock()
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		w.live.Add(1)
		defer w.live.Add(-1)
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{Model: w.info.GetModel()}}}, nil) {
			return
		}
		for range req.GetSampling().GetMaxTokens() {
			select {
			case <-time.After(time.Millisecond):
			case <-stream.Stopping(ctx):
				yield(nil, stream.Cause(ctx))
				return
			}
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{100}}}}, nil) {
				return
			}
		}
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{w.hop.Name}}}}, nil)
	}
}

// last returns the last request.
func (w *worker) last() *workerv1.TokenRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[len(w.asked)-1]
}

// work serves a worker of a model until the test ends. change modifies its info.
func work(t *testing.T, name, model string, change func(*llmv1.WorkerInfo)) *worker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{addr: ln.Addr().String()}
	w.info.Instance, w.info.Model, w.info.VocabSize, w.info.ContextLength, w.info.Continues = name, model, 1<<20, 2048, true
	w.info.Capabilities = &llmv1.Capabilities{Sampling: []string{"max_tokens", "seed", "stop_token_ids", "temperature"}}
	if change != nil {
		change(&w.info)
	}
	w.hop.Name, w.hop.Log, w.hop.Observer = name, slog.New(slog.DiscardHandler), &ledger.Ledger{}
	srv := grpc.NewServer()
	workerv1.RegisterWorkerServer(srv, w)
	inspect.Register(srv, &w.hop, nil)
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(ln) })
	t.Cleanup(func() {
		srv.Stop()
		serving.Wait()
	})
	return w
}

// A journal is the log of a registry, and records whether the registry is healthy.
type journal struct {
	logtest.Log
	healthy atomic.Bool
}

// open returns a registry, closed with the test.
func open(t *testing.T) (*Registry, *journal) {
	t.Helper()
	j := new(journal)
	r := New("chat", slog.New(slog.NewTextHandler(j, nil)), j.healthy.Store)
	t.Cleanup(r.Close)
	return r, j
}

// card returns a card with the embedded files.
func card(name string, workers ...*worker) Card {
	var addrs []string
	for _, w := range workers {
		addrs = append(addrs, w.addr)
	}
	return Card{Name: name, Workers: strings.Join(addrs, ","), Timers: rpc.Timers{Stall: time.Minute}}
}

func set(t *testing.T, r *Registry, cards ...Card) {
	t.Helper()
	if err := r.Set(cards); err != nil {
		t.Fatal(err)
	}
}

// healthy waits until n workers are healthy.
func healthy(t *testing.T, r *Registry, n int) {
	t.Helper()
	polltest.Eventually(t, "workers are healthy", func() bool { h, _ := r.Count(); return h == n })
}

// ask reads a stream of this many tokens. at is called with the number of tokens so far.
func ask(t *testing.T, r *Registry, model string, tokens uint32, at func(int)) (got int, err error) {
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	req := &chatv1.ChatRequest{Model: model, StreamId: stream.NewID(), Messages: []*chatv1.Message{{Role: "user", Content: "hi"}}, Sampling: &llmv1.Sampling{MaxTokens: &tokens}}
	for out, err := range chat.Engine(r.Generate).Range(ctx, req) {
		if err != nil {
			return got, err
		}
		if d := out.GetDelta(); d != nil {
			got += int(d.GetTokens())
			if at != nil {
				at(got)
			}
		}
	}
	return got, nil
}

// directory returns a copy of the embedded model, without its weights.
func directory(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "tokenizer.json", "tokenizer_config.json"} {
		b, err := fs.ReadFile(whencetiny.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(b))
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func tinySum(t *testing.T) string {
	t.Helper()
	b, err := fs.ReadFile(whencetiny.FS(), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := tokenizer.Checksum(b)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

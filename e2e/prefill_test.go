package e2e

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	usagelog "github.com/whence-dev/whence/pkg/usage"
)

// A readingWorker is a worker that reads prompts until it is stopped, and never answers. It admits a
// stream only with its first token, as most engines do. asked receives for each call.
type readingWorker struct {
	relayWorker
	asked chan struct{}
}

// Generate implements workerv1.WorkerServer.
func (r *readingWorker) Generate(caller grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	if _, err := caller.Recv(); err != nil {
		return err
	}
	r.asked <- struct{}{}
	_, _ = caller.Recv() // a Stop
	return status.Error(codes.Canceled, "stopped")
}

// Embed implements workerv1.WorkerServer.
func (r *readingWorker) Embed(ctx context.Context, _ *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	r.asked <- struct{}{}
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

// TestPromptCountsIfItsClientLeavesDuringPrefill checks the usage records of streams whose client leaves
// before a worker has admitted them: over links, over gRPC, and in a gateway.
func TestPromptCountsIfItsClientLeavesDuringPrefill(t *testing.T) {
	t.Parallel()
	real := service(t, llmWorker, "127.0.0.1:0").listening(t)
	for _, between := range []string{"links", "gRPC", inGateway} {
		t.Run(between, func(t *testing.T) {
			r := &readingWorker{asked: make(chan struct{}, 100)}
			r.real, r.info = workerv1.NewWorkerClient(dialGRPC(t, real)), func(*llmv1.WorkerInfo) {}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer()
			workerv1.RegisterWorkerServer(s, r)
			go s.Serve(ln) // until Stop
			t.Cleanup(s.Stop)
			file := filepath.Join(t.TempDir(), "usage.jsonl")
			w := &whence{topology: separate, worker: real, processes: map[string]*process{}}
			below, recorded := []string{"--worker", ln.Addr().String()}, []string{"--usage-file", file}
			if between == inGateway {
				p := service(t, gatewayCommand, "127.0.0.1:0", below, recorded)
				w.topology, w.processes[apiService], w.processes[chatService] = inGateway, p, p
			} else {
				link := []string{"--link=" + strconv.FormatBool(between == "links")}
				w.processes[chatService] = service(t, chatService, "127.0.0.1:0", below, link)
				above := []string{"--chat", w.processes[chatService].listening(t)}
				w.processes[apiService] = service(t, apiService, "127.0.0.1:0", above, link, recorded)
				awaitLinks(t, w.processes[apiService], 1)
			}
			w.api = w.processes[apiService].listening(t)
			w.connected(t)

			prompts := [][]int{{5, 6, 7}, {8, 9, 10, 11}}
			for id, c := range map[string]struct {
				path  string
				body  ask
				calls int
				want  uint32
			}{
				"streamed":   {"/v1/completions", ask{"model": model, "prompt": prompts[1], "max_tokens": 5, "stream": true}, 1, 4},
				"whole":      {"/v1/completions", ask{"model": model, "prompt": prompts[1], "max_tokens": 5}, 1, 4},
				"choices":    {"/v1/completions", ask{"model": model, "prompt": prompts[1], "max_tokens": 5, "n": 2}, 2, 4},
				"two":        {"/v1/completions", ask{"model": model, "prompt": prompts, "max_tokens": 5}, 2, 7},
				"embeddings": {"/v1/embeddings", ask{"model": model, "input": prompts}, 1, 7},
			} {
				conn := w.connect(t)
				w.askFor(t, conn, c.path, c.body, id)
				for range c.calls {
					<-r.asked
				}
				_ = conn.Close()
				var records []usagelog.Record
				polltest.Eventually(t, "the usage record of "+id, func() bool {
					records = nil
					for _, u := range usageRecords(t, file) {
						if u.ID == id {
							records = append(records, u)
						}
					}
					return len(records) > 0
				})
				if u := records[0]; len(records) != 1 || u.Prompt != c.want || u.Generated != 0 || u.Reason != "client_gone" {
					t.Errorf("%s: the usage records are %+v, want %d tokens of prompts", id, records, c.want)
				}
				if story := w.why(t, id); story.Tokens.Prompt != c.want {
					t.Errorf("%s: the story has %d tokens of prompts, want %d", id, story.Tokens.Prompt, c.want)
				}
			}
		})
	}
}

// Package relay is the simplest path that a Go programmer would write, for comparison: an edge that
// converts server-sent events to a gRPC call, and a relay that forwards the call to a worker,
// message by message, on grpc-go and net/http. It has no templates, tokenizer, retries, timeouts or
// metrics.
package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// A Speller converts token ids to text.
type Speller func(ids []uint32) string

// Middle serves the second hop on ln: it forwards each Generate call to the worker at an address.
func Middle(ln net.Listener, worker string) error {
	conn, err := grpc.NewClient(worker, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	workerv1.RegisterWorkerServer(s, &middle{worker: workerv1.NewWorkerClient(conn)})
	return s.Serve(ln)
}

type middle struct {
	workerv1.UnimplementedWorkerServer
	worker workerv1.WorkerClient
}

// Generate implements workerv1.WorkerServer.
func (m *middle) Generate(up grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	req, err := up.Recv()
	if err != nil {
		return err
	}
	down, err := m.worker.Generate(up.Context())
	if err != nil {
		return err
	}
	if err := down.Send(req); err != nil {
		return err
	}
	for {
		resp, err := down.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := up.Send(resp); err != nil {
			return err
		}
	}
}

// Edge serves the first hop on ln: chat completions as server-sent events, from the relay at an
// address.
func Edge(ln net.Listener, relay string, spell Speller) error {
	conn, err := grpc.NewClient(relay, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	e := &edge{relay: workerv1.NewWorkerClient(conn), spell: spell}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", e.complete)
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	return http.Serve(ln, mux) //nolint:gosec // the only client is the load generator
}

type edge struct {
	relay workerv1.WorkerClient
	spell Speller
}

// question is the part of a chat completion that the edge reads.
type question struct {
	Model     string `json:"model"`
	Seed      uint64 `json:"seed"`
	MaxTokens uint32 `json:"max_tokens"`
	Messages  []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
}

// A chunk is an event of the answer.
type chunk struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
}

type choice struct {
	Index  int     `json:"index"`
	Delta  delta   `json:"delta"`
	Finish *string `json:"finish_reason"`
}

type delta struct {
	Content string `json:"content,omitempty"`
}

func (e *edge) complete(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	st, err := e.ask(r.Context(), &q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := http.NewResponseController(w)
	c := chunk{ID: fmt.Sprint("chatcmpl-", q.Seed), Object: "chat.completion.chunk", Model: q.Model, Choices: make([]choice, 1)}
	write := func() error {
		b, err := json.Marshal(&c)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", b); err != nil {
			return err
		}
		return flusher.Flush()
	}
	for {
		resp, err := st.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return
		}
		if ids := resp.GetTokens().GetIds(); len(ids) > 0 {
			c.Choices[0].Delta.Content = e.spell(ids)
			if write() != nil {
				return
			}
		}
	}
	finish := "length"
	c.Choices[0] = choice{Finish: &finish}
	if write() == nil {
		_, _ = io.WriteString(w, "data: [DONE]\n\n") // a client that has left needs no ending
	}
}

// ask begins the stream. Each word of the messages counts as a token, because there is no
// tokenizer.
func (e *edge) ask(ctx context.Context, q *question) (workerv1.Worker_GenerateClient, error) {
	st, err := e.relay.Generate(ctx)
	if err != nil {
		return nil, err
	}
	prompt := []uint32{1}
	for _, m := range q.Messages {
		for range strings.Fields(m.Content) {
			prompt = append(prompt, 1)
		}
	}
	return st, st.Send(&workerv1.GenerateRequest{Message: &workerv1.GenerateRequest_Tokens{Tokens: &workerv1.TokenRequest{
		Model: q.Model, Prompt: prompt, Sampling: &llmv1.Sampling{Seed: &q.Seed, MaxTokens: &q.MaxTokens, IgnoreEos: true},
	}}})
}

package bench_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// A relay is the baseline for Whence: two bare hops of grpc-go. The first hop forwards the messages
// of the second. A cancel travels as resets of contexts, without a reason, a path, a log or a
// ledger.
type relay struct {
	client workerv1.WorkerClient
	leaf   *leaf
}

// A leaf sends a token every gap, and records when its callers leave.
type leaf struct {
	workerv1.UnimplementedWorkerServer
	gap     time.Duration
	stopped sync.Map // stream id to *run
}

func (l *leaf) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	r := &run{}
	defer func() {
		r.stopped = time.Now()
		l.stopped.Store(first.GetTokens().GetStreamId(), r)
	}()
	token := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{1}}}}
	for {
		if err := st.Send(token); err != nil {
			return err
		}
		r.token()
		select {
		case <-time.After(l.gap):
		case <-st.Context().Done():
			return st.Context().Err()
		}
	}
}

// A middle forwards calls to the leaf.
type middle struct {
	workerv1.UnimplementedWorkerServer
	next workerv1.WorkerClient
}

func (m *middle) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	down, err := m.next.Generate(st.Context())
	if err != nil {
		return err
	}
	if err := down.Send(first); err != nil {
		return err
	}
	for {
		out, err := down.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := st.Send(out); err != nil {
			return err
		}
	}
}

func startRelay(b *testing.B, gap time.Duration) *relay {
	b.Helper()
	serve := func(s workerv1.WorkerServer) workerv1.WorkerClient {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		srv := grpc.NewServer()
		workerv1.RegisterWorkerServer(srv, s)
		var wg sync.WaitGroup
		wg.Go(func() { _ = srv.Serve(ln) }) // until Stop
		cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = cc.Close()
			srv.Stop()
			wg.Wait()
		})
		return workerv1.NewWorkerClient(cc)
	}
	l := &leaf{gap: gap}
	return &relay{client: serve(&middle{next: serve(l)}), leaf: l}
}

// open starts a stream and returns when its first token has arrived. The caller cancels ctx to
// leave.
func (r *relay) open(ctx context.Context, id string) (read func() error, err error) {
	st, err := r.client.Generate(ctx)
	if err != nil {
		return nil, err
	}
	if err := st.Send(&workerv1.GenerateRequest{Message: &workerv1.GenerateRequest_Tokens{Tokens: &workerv1.TokenRequest{StreamId: id}}}); err != nil {
		return nil, err
	}
	read = func() error {
		_, err := st.Recv()
		return err
	}
	return read, read()
}

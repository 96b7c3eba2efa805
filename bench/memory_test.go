package bench

import (
	"context"
	"fmt"
	"iter"
	"net"
	"runtime"
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

const (
	openStreams = 200
	// variables is the size of the template variables in a request, in bytes.
	variables = 64 << 10
	// heapOfStream bounds the heap of an open stream in all three services, in bytes: about 50 KB,
	// mostly in netpoll, Hertz, contexts and the records of each hop.
	heapOfStream = 64 << 10
	// goroutinesOfStream bounds the goroutines of an open stream in all three services: one per
	// hop, and a few that are about to end.
	goroutinesOfStream = 3.5
)

// TestOpenStreamsHoldLittle opens streams that have received a token and wait for more: neither
// their requests nor the buffers of these requests may live as long as the streams.
func TestOpenStreamsHoldLittle(t *testing.T) {
	m, err := metrics.New("bench")
	if err != nil {
		t.Fatal(err)
	}
	p, err := StartLinked(waiting, m, &streamtrace.Tracer{Messages: streamtrace.DefaultMessages})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	warm := p.open(t, openStreams/10) // caches and pools fill
	defer closeAll(warm)
	heap, goroutines := live()
	all := p.open(t, openStreams)
	defer closeAll(all)
	after, now := live()
	if each := (int64(after) - int64(heap)) / openStreams; each > heapOfStream {
		t.Errorf("an open stream holds %d bytes, want at most %d", each, heapOfStream)
	} else {
		t.Logf("an open stream holds %d bytes", each)
	}
	if each := float64(now-goroutines) / openStreams; each > goroutinesOfStream {
		t.Errorf("an open stream has %.1f goroutines, want at most %.1f", each, goroutinesOfStream)
	} else {
		t.Logf("an open stream has %.1f goroutines", each)
	}
}

// waiting is an engine that sends a token and then waits for the stop.
func waiting(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		started := &llmv1.Started{StreamId: stream.ID(ctx), Model: whencetiny.Name, PromptTokens: uint32(len(req.GetPrompt()))}
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: started}}, nil) {
			return
		}
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{300}}}}, nil) {
			return
		}
		<-stream.Stopping(ctx)
		yield(nil, stream.Cause(ctx))
	}
}

// open opens n streams and returns when each has received its token.
func (p *Path) open(t *testing.T, n int) []net.Conn {
	t.Helper()
	body := fmt.Sprintf(`{"model":"whence-tiny","stream":true,"max_tokens":9,"chat_template_kwargs":{"unused":"%s"},"messages":[{"role":"user","content":"the fox and the hen"}]}`,
		strings.Repeat("x", variables))
	all := make([]net.Conn, n)
	for i := range all {
		conn, err := net.Dial("tcp", p.Edge)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = conn
		if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", p.Edge, len(body), body); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range all {
		var answer strings.Builder
		for buf := make([]byte, 4<<10); !strings.Contains(answer.String(), string(contentMark)); {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("%v after %q", err, answer.String())
			}
			answer.Write(buf[:n])
		}
	}
	return all
}

func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// live returns the size of the reachable objects, in bytes, and the number of goroutines.
func live() (heap uint64, goroutines int) {
	for range 3 { // pools are emptied in two cycles
		runtime.GC()
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc, runtime.NumGoroutine()
}

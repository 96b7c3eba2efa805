package edge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/stream"
)

const (
	// maxUnreadEvents is how many events a reader of the benchmark may be behind, so that no stream
	// ends with SLOW_READER.
	maxUnreadEvents = 500
	// eventLines is the number of line ends of an event and its chunk.
	eventLines = 4
)

// startCounting runs an edge whose chat-service is a loop that sends tokens messages per stream,
// the same message each time, with a pause of pace before each. read maps a stream's id to the
// number of lines that its reader has read.
func startCounting(b *testing.B, tokens int, pace time.Duration, read *sync.Map) (addr string) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	delta := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: " token", Tokens: 1}}}
	c := edge.Config{
		Name: "api-service", Chat: "127.0.0.1:1", MaxBody: 10000, MaxStreams: 1000, ReadTimeout: 5 * time.Second,
		WriteTimeout: edge.DefaultWriteTimeout, ClientTimeout: edge.DefaultClientTimeout, HeadersAfter: edge.DefaultHeadersAfter,
		KeepAlive: edge.DefaultKeepAlive, MaxUnsent: edge.DefaultMaxUnsent, Grace: time.Second,
		Timers: rpc.Timers{FirstToken: time.Minute, Stall: time.Minute},
		Replay: replay.Limits{Bytes: 1 << 31, StreamBytes: 1 << 30},
		Stage: func(stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse]) stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse] {
			return func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
				return func(yield func(*chatv1.GenerateResponse, error) bool) {
					if !yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{StreamId: req.GetStreamId(), Model: "m"}}}, nil) {
						return
					}
					progress, _ := read.Load(req.GetStreamId())
					timer := time.NewTimer(0)
					wait := func(d time.Duration) {
						timer.Reset(d)
						<-timer.C
					}
					<-timer.C
					for i := range tokens {
						if pace > 0 {
							wait(pace)
						}
						for int64(i)-progress.(*atomic.Int64).Load()/eventLines > maxUnreadEvents {
							wait(20 * time.Microsecond)
						}
						if !yield(delta, nil) {
							yield(nil, stream.Cause(ctx))
							return
						}
					}
					yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_STOP}}}, nil)
				}
			}
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := edge.Run(ctx, c, ln, slog.New(slog.DiscardHandler)); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return ln.Addr().String()
}

// readStream asks for a stream and reads it to its end. It adds the number of lines read to lines.
func readStream(b *testing.B, addr, headers string, lines *atomic.Int64) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Error(err)
		return
	}
	defer conn.Close()
	const body = `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", headers, len(body), body)
	for buf := make([]byte, 64<<10); ; {
		n, err := conn.Read(buf)
		lines.Add(int64(bytes.Count(buf[:n], []byte{'\n'})))
		if err != nil {
			if !errors.Is(err, io.EOF) {
				b.Error(err)
			}
			return
		}
	}
}

// processTime returns the CPU time of the process.
func processTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkToken measures the cost of one token from the chat-service's message to the client's
// socket, client included: one operation is one token. Allocations are those of the whole process;
// the message itself is not allocated.
func BenchmarkToken(b *testing.B) {
	for name, headers := range map[string]string{"plain": "", "kept": "X-Leave: detach\r\n"} {
		for _, c := range []struct {
			streams int
			pace    time.Duration
		}{{1, 0}, {16, 0}, {16, time.Millisecond}} {
			b.Run(fmt.Sprintf("%s/streams=%d/pace=%v", name, c.streams, c.pace), func(b *testing.B) {
				streams := c.streams
				b.ReportAllocs()
				each := max(1, b.N/streams)
				var read sync.Map
				addr := startCounting(b, each, c.pace, &read)
				var all sync.WaitGroup
				before := processTime()
				b.ResetTimer()
				for i := range streams {
					progress := &atomic.Int64{}
					id := fmt.Sprintf("stream-%d", i)
					read.Store(id, progress)
					all.Go(func() {
						readStream(b, addr, "X-Request-Id: "+id+"\r\n"+headers, progress)
						if got := progress.Load(); got < int64(each)*eventLines {
							b.Errorf("%d lines of %d tokens", got, each)
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(processTime()-before)/float64(each*streams), "cpu-ns/token")
			})
		}
	}
}

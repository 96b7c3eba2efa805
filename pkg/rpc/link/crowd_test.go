//go:build unix

package link_test

import (
	"context"
	"fmt"
	"iter"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/connloss"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/stream"
)

// paced yields a token every prompt[1] microseconds until it is stopped; 0 means without pause.
func paced(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		stopping := stream.Stopping(ctx)
		every := time.Duration(req.GetPrompt()[1]) * time.Microsecond
		timer := time.NewTimer(every)
		defer timer.Stop()
		due := time.Now()
		for {
			if due = due.Add(every); every > 0 {
				timer.Reset(time.Until(due))
				select {
				case <-timer.C:
				case <-stopping:
				}
			}
			select {
			case <-stopping:
				yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}, nil)
				return
			default:
			}
			if !yield(tokens(1), nil) {
				return
			}
		}
	}
}

// cpu returns the CPU time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCrowd compares the CPU time per item of both ends, over gRPC and over links on loopback.
// none is the engine and the reader alone, whose cost the ratio excludes. The rounds alternate, and
// the ratio is the median over the rounds.
func BenchmarkCrowd(b *testing.B) {
	w, _, linked := serve(b, link.Options{}, paced)
	s := grpc.NewServer(grpc.Creds(connloss.Sense(insecure.NewCredentials())))
	workerv1.RegisterWorkerServer(s, w)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	b.Cleanup(func() { s.Stop(); serving.Wait() })
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cc.Close() })
	engines := map[string]stream.Sequence[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
		"none": paced, "grpc": engineAt(workerv1.NewWorkerClient(cc)).Range, "link": engineAt(dial(b, linked, link.Options{})).Range,
	}
	for _, c := range []struct {
		name    string
		streams int
		every   time.Duration
	}{{"spread", 200, 20 * time.Millisecond}, {"few", 40, 20 * time.Millisecond}, {"full speed", 32, 0}} {
		b.Run(fmt.Sprintf("%s/%d", c.name, c.streams), func(b *testing.B) {
			per, stops := map[string][]float64{}, map[string][]float64{}
			for b.Loop() {
				for name, engine := range engines {
					item, stop := crowd(b, engine, c.streams, c.every)
					per[name], stops[name] = append(per[name], item), append(stops[name], float64(stop.Microseconds())/1000)
				}
			}
			ratios := make([]float64, len(per["grpc"]))
			for i, grpc := range per["grpc"] {
				ratios[i] = (per["link"][i] - per["none"][i]) / (grpc - per["none"][i])
			}
			b.ReportMetric(median(per["none"]), "none-us/item")
			b.ReportMetric(median(per["grpc"]), "grpc-us/item")
			b.ReportMetric(median(per["link"]), "link-us/item")
			b.ReportMetric(median(ratios), "link/grpc")
			b.ReportMetric(median(stops["grpc"]), "grpc-stop-ms")
			b.ReportMetric(median(stops["link"]), "link-stop-ms")
		})
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// crowd runs streams for a second. It returns the CPU time per item in microseconds, and the time
// it took to stop all streams.
func crowd(b *testing.B, engine stream.Sequence[*workerv1.TokenRequest, *workerv1.GenerateResponse], streams int, every time.Duration) (item float64, stop time.Duration) {
	b.Helper()
	var reading sync.WaitGroup
	counts := make([]int, streams)
	ctx, ctl := stream.WithControl(b.Context(), 10*time.Second)
	defer ctl.Release()
	begun := cpu()
	for i := range streams {
		reading.Go(func() {
			<-time.After(every * time.Duration(i) / time.Duration(streams))
			for _, err := range engine(ctx, &workerv1.TokenRequest{Prompt: []uint32{0, uint32(every.Microseconds())}}) {
				if err != nil {
					return // stopped
				}
				counts[i]++
			}
		})
	}
	<-time.After(time.Second)
	stopped := time.Now()
	ctl.Stop(context.Canceled)
	reading.Wait()
	stop = time.Since(stopped)
	items := 0
	for _, n := range counts {
		items += n
	}
	return float64((cpu() - begun).Microseconds()) / float64(max(items, 1)), stop
}

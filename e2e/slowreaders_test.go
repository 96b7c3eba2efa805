package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/stream"
)

var (
	slowReaders  = flag.Int("slow", 50, "number of `readers` of a byte per second in TestSlowReadersDelayNoOtherStream")
	besideThem   = flag.Int("beside", 10, "number of `streams` beside them that are read without delay")
	slowFor      = flag.Duration("slow-for", 10*time.Second, "`duration` of their streams")
	slowFindings = flag.String("slow-findings", "", "write the measurements of TestSlowReadersDelayNoOtherStream to this `file`")
)

const (
	wideContext  = 1 << 17 // context of a model whose answers fill buffers
	atOnce       = 200     // tokens per message of a slowly read stream, so that few messages carry much text
	lumpEvery    = 500 * time.Millisecond
	normalEvery  = 100 * time.Millisecond // between the tokens of a stream that is read without delay
	normalTokens = 100
	replayBound  = 256 << 20
	memoryPerOne = 256 << 10 // per slow reader, in addition to its stored events: connection, handler, buffers
)

// seededEngine is an engine whose answer depends only on the seed. It has the pace of a stream for
// a slow reader if max_tokens fills more than one message. With temperature 0 it has no pace.
func seededEngine(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		started := &llmv1.Started{StreamId: stream.ID(ctx), Model: model, PromptTokens: uint32(len(req.GetPrompt()))}
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: started}}, nil) {
			return
		}
		s := req.GetSampling()
		lump, every := uint32(1), normalEvery
		if s.GetMaxTokens() > atOnce {
			lump, every = atOnce, lumpEvery
		}
		if s.GetTemperature() == 0 {
			every = 0
		}
		for n := uint32(0); n < s.GetMaxTokens(); n += lump {
			select {
			case <-time.After(every):
			case <-stream.Stopping(ctx):
				yield(nil, stream.Cause(ctx))
				return
			}
			ids := make([]uint32, lump)
			for i := range ids {
				ids[i] = 1000 + (uint32(s.GetSeed())*31+(n+uint32(i))*7)%500
			}
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: ids}}}, nil) {
				return
			}
		}
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_LENGTH,
			Usage: &llmv1.Usage{PromptTokens: uint32(len(req.GetPrompt())), CompletionTokens: s.GetMaxTokens()},
		}}}, nil)
	}
}

// startSeeded runs the path in front of seededEngine: a worker in this process, and the two
// services.
func startSeeded(t *testing.T) *whence {
	t.Helper()
	dir := wideModel(t, wideContext)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	info := func() *llmv1.WorkerInfo {
		return &llmv1.WorkerInfo{ContextLength: wideContext, VocabSize: 1 << 16}
	}
	s := worker.NewServer(worker.ServeName, model, seededEngine, info, slog.New(slog.DiscardHandler))
	s.SetHealthy(true)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ctx, ln, 0); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { // after the services have ended
		cancel()
		wg.Wait()
	})
	w := &whence{topology: separate, worker: ln.Addr().String(), processes: map[string]*process{}}
	w.processes[chatService] = service(t, chatService, "127.0.0.1:0", []string{"--worker", w.worker, "--model", dir, "--model-name", model})
	w.chat = w.processes[chatService].listening(t)
	w.processes[apiService] = service(t, apiService, "127.0.0.1:0", []string{"--chat", w.chat, "--max-unsent", "4096",
		"--write-timeout", slowTimeout().String(), "--replay-bytes", strconv.Itoa(replayBound)})
	w.api = w.processes[apiService].listening(t)
	w.connected(t)
	w.http.Transport.(*http.Transport).MaxIdleConnsPerHost = 100
	return w
}

// slowTimeout is --write-timeout: slow readers stay for a while before they are disconnected.
func slowTimeout() time.Duration { return *slowFor / 3 }

// seededRequest returns a request for n tokens.
func seededRequest(seed, n int, temperature float64) ask {
	return greedy(short, "seed", seed, "max_tokens", n, "temperature", temperature)
}

// narrow returns a transport whose connections buffer few unread bytes.
func narrow(t *testing.T) *http.Transport {
	dialer := &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		refused := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2048)
		})
		return errors.Join(refused, err)
	}}
	by := &http.Transport{DisableKeepAlives: true, ReadBufferSize: 256, DialContext: dialer.DialContext}
	t.Cleanup(by.CloseIdleConnections)
	return by
}

// TestSlowReadersDelayNoOtherStream runs readers of a byte per second beside streams that are read without
// delay. Streams of slow readers continue, and can be read again afterwards to the last byte; the
// memory that api-service uses for them is bounded. scripts/slowreaders measures more.
func TestSlowReadersDelayNoOtherStream(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	asShipped(t)
	w := startSeeded(t)
	api := w.processes[apiService]
	tokens := int(*slowFor/lumpEvery) * atOnce
	want := make([]string, mileTexts)
	for i := range want {
		want[i] = w.answer(t, seededRequest(i, tokens, 0))
	}
	without := w.gaps(t, *besideThem)
	before := residentMemory(t, api)

	readers := make([]*reader, *slowReaders)
	var wg sync.WaitGroup
	over := make(chan struct{})
	by := narrow(t)
	begun := time.Now()
	entered := make(chan struct{}, len(readers))
	for i := range readers {
		wg.Go(func() {
			m := w.makeStream(t, seededRequest(i%len(want), tokens, 1), "X-Leave", "detach")
			readers[i] = m.read(t, w.api)
			readers[i].by = by
			readers[i].begun()
			entered <- struct{}{}
			trickle(readers[i].resp.Body, over)
		})
	}
	for range readers {
		select {
		case <-entered:
		case <-time.After(patience + *slowFor):
			t.Fatal("not all slow readers got their first event")
		}
	}
	all := time.Since(begun)
	with := w.gaps(t, *besideThem)
	lab.Pause(t.Context(), time.Until(begun.Add(*slowFor)))
	polltest.Eventually(t, "all streams have ended, whatever their readers do", func() bool { return w.live(t) == 0 })
	during := residentMemory(t, api)
	close(over)
	wg.Wait()
	left := departures(api, len(readers))
	for i, r := range readers {
		r.by = nil
		if r.connect() != http.StatusOK {
			t.Fatalf("stream %d cannot be read again", i)
		}
		r.rest().completed(want[i%len(want)])
	}
	after := residentMemory(t, api)
	t.Logf("%d slow readers had connected after %v, and left for these reasons: %v", len(readers), all.Round(time.Millisecond), left)
	if left["slow_reader"] == 0 {
		t.Errorf("no reader was disconnected as too slow: %v", left)
	}
	kept := len(readers) * len(want[0])
	if bound := int64(kept + len(readers)*memoryPerOne + 64<<20); during-before > bound {
		t.Errorf("api-service has grown by %d bytes, and stores %d bytes", during-before, kept)
	}
	if *slowFindings != "" {
		report := fmt.Sprintf(`%d readers of a byte a second, beside %d streams with a token every %v
gap between events of the latter     p50 %v, p99 %v alone; p50 %v, p99 %v beside them: %.2fx at p99
memory of the api-service            %d MiB before, %d MiB while they were there, %d MiB after all was read again
what is kept for readers             %.1f MiB of text, of at most %d MiB (--replay-bytes)
how slow readers left                %v (--write-timeout %v)
read again, to the last byte         %d of %d
`, len(readers), *besideThem, normalEvery,
			quantile(without, 0.5), quantile(without, 0.99), quantile(with, 0.5), quantile(with, 0.99), float64(quantile(with, 0.99))/float64(quantile(without, 0.99)),
			before>>20, during>>20, after>>20, float64(kept)/(1<<20), replayBound>>20, left, slowTimeout(), len(readers), len(readers))
		if err := os.WriteFile(*slowFindings, []byte(report), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// live returns the number of streams that run on api-service.
func (w *whence) live(t *testing.T) int {
	t.Helper()
	var list struct{ Streams []struct{ ID string } }
	if err := json.Unmarshal(w.get(t, "/v1/streams").body, &list); err != nil {
		t.Fatal(err)
	}
	return len(list.Streams)
}

// trickle reads a byte per second until its connection has ended. When over is closed, trickle
// closes the connection.
func trickle(body io.ReadCloser, over <-chan struct{}) {
	defer body.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, err := body.Read(make([]byte, 1)); err != nil {
				return
			}
		case <-over:
			return
		}
	}
}

// gaps reads n streams concurrently and returns the times between their events.
func (w *whence) gaps(t *testing.T, n int) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			l := w.open(t, seededRequest(i, normalTokens, 1)).begun(t)
			var own []time.Duration
			for last, size := time.Now(), l.text.Len(); !l.done; {
				if _, err := l.next(); err != nil {
					t.Errorf("a stream beside slow readers was cut: %v", err)
					return
				}
				if l.text.Len() > size {
					now := time.Now()
					own = append(own, now.Sub(last))
					last, size = now, l.text.Len()
				}
			}
			l.close()
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	wg.Wait()
	slices.Sort(all)
	return all
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(math.Ceil(q*float64(len(sorted)))))].Round(100 * time.Microsecond)
}

// departures counts the departures of the first n readers by reason.
func departures(p *process, n int) map[string]int {
	left := map[string]int{}
	lines := p.Log.All()
	for _, line := range lines {
		var r record
		if json.Unmarshal([]byte(line), &r) == nil && r.Msg == "reader left" && n > 0 {
			left[r.Reason]++
			n--
		}
	}
	return left
}

// residentMemory returns the resident memory of a process, in bytes.
func residentMemory(t *testing.T, p *process) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		t.Skip(err) // only Linux has this file
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("no VmRSS in %s", status)
	return 0
}

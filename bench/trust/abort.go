package main

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/ledger"
)

const (
	// maxGrowth is the memory in bytes that the services may keep.
	maxGrowth = 20 << 20
	// warming is the number of requests that are opened at a time before the measurement.
	warming = 20
)

// openAndAbort opens requests and aborts them at once. At least half of them must have become
// streams by then: otherwise the row would measure nothing.
func openAndAbort(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
	ctx, t.Leave = context.WithCancel(ctx)
	requests, lasts := 10*t.Streams, 10*time.Second
	body := new(reader.Reader).Body(100)
	abort := func() {
		one, leave := context.WithTimeout(ctx, 5*time.Millisecond)
		defer leave()
		req, err := http.NewRequestWithContext(one, http.MethodPost, "http://"+t.Edges[0].Addr+"/v1/chat/completions", bytes.NewReader(body))
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", "application/json")
		if resp, err := t.HTTP.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	// The services keep records of their last streams. The measurement begins when there is no room
	// for more of them, so that it shows what aborted requests leave behind besides.
	for range warming {
		t.Reading.Go(func() {
			for range max(requests, ledger.DefaultMax) / warming {
				abort()
			}
		})
	}
	t.Reading.Wait()
	t.Remaining(ctx)
	before, err := memory(t)
	if err != nil {
		return nil, err
	}
	earlier, err := trial.Sum(ctx, t.Edges[0], endings)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	for i := range requests {
		t.Reading.Go(abort)
		time.Sleep(time.Until(begun.Add(time.Duration(i) * lasts / time.Duration(requests))))
	}
	t.Reading.Wait()
	t.Remaining(ctx)
	after, err := settled(ctx, t, before+maxGrowth)
	if err != nil {
		return nil, err
	}
	admitted, err := trial.Sum(ctx, t.Edges[0], endings)
	return []trial.Finding{
		{What: "resident memory of api-service and chat-service within 5 s, more than before", Got: float64(after-before) / (1 << 20)},
		{What: "requests that were aborted before they were streams", Got: 100 * (1 - (admitted-earlier)/float64(requests))},
	}, err
}

// endings is the metric that counts ended streams.
const endings = "whence_stream_endings_total"

// settled returns the resident memory when it has fallen to enough bytes, or after 5 s.
func settled(ctx context.Context, t *trial.Trial, enough int64) (sum int64, err error) {
	for end := time.Now().Add(5 * time.Second); ; {
		if sum, err = memory(t); err != nil || sum <= enough || time.Now().After(end) || ctx.Err() != nil {
			return sum, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func memory(t *trial.Trial) (sum int64, err error) {
	for _, p := range []*lab.Process{t.Edges[0], t.Chats[0]} {
		n, err := p.RSS()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

package main

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

// openAndAbort opens requests and aborts them at once. At least half of them must have become streams by then: otherwise the
// row would measure nothing.
func openAndAbort(ctx context.Context, s *stand) ([]finding, error) {
	ctx, s.leave = context.WithCancel(ctx)
	requests, lasts := 10*s.streams, 10*time.Second
	body := bodyOf(100)
	abort := func() {
		one, leave := context.WithTimeout(ctx, 5*time.Millisecond)
		defer leave()
		req, err := http.NewRequestWithContext(one, http.MethodPost, "http://"+s.edges[0].addr+"/v1/chat/completions", bytes.NewReader(body))
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", "application/json")
		if resp, err := s.http.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	for range requests / 2 { // until the heaps have the size between two collections that such requests need
		abort()
	}
	s.remaining(ctx)
	before, err := s.memory()
	if err != nil {
		return nil, err
	}
	earlier, err := s.scrape(ctx, s.edges[0], endings)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	for i := range requests {
		s.reading.Go(abort)
		time.Sleep(time.Until(begun.Add(time.Duration(i) * lasts / time.Duration(requests))))
	}
	s.reading.Wait()
	s.remaining(ctx)
	after, err := s.memory()
	if err != nil {
		return nil, err
	}
	admitted, err := s.scrape(ctx, s.edges[0], endings)
	return []finding{
		{what: "resident memory of api-service and chat-service, more than before", unit: mebibytes, got: float64(after-before) / (1 << 20), bound: 20},
		{what: "requests that were aborted before they were streams", unit: percent, got: 100 * (1 - (admitted-earlier)/float64(requests)), bound: 50},
	}, err
}

// endings begins the samples of streams that have ended.
const endings = "whence_stream_endings_total{"

func (s *stand) memory() (sum int64, err error) {
	for _, p := range []*service{s.edges[0], s.chats[0]} {
		n, err := p.RSS()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

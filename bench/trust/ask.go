package main

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// short is the number of tokens of the requests of ask.
const short = 5

// A keySender adds an API key to each request.
type keySender struct {
	key  string
	next http.RoundTripper
}

func (k keySender) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return k.next.RoundTrip(r)
}

// client returns a client that sends a key, or none if key is "".
func (s *stand) client(key string) *http.Client {
	if key == "" {
		return s.http
	}
	return &http.Client{Transport: keySender{key, s.http.Transport}}
}

// ask sends rate short requests a second for a while, beside the streams of the row, and returns
// their readers when all have ended.
func (s *stand) ask(ctx context.Context, key string, rate int, lasts time.Duration) []*reader {
	ctx, cancel := context.WithTimeout(ctx, lasts+within)
	defer cancel()
	var all []*reader
	var asking sync.WaitGroup
	client := s.client(key)
	begun := time.Now()
	for i := range max(1, rate*int(lasts/time.Millisecond)/1000) {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		s.asked++
		r := &reader{id: "asks-" + strconv.Itoa(s.asked)}
		all = append(all, r)
		asking.Go(func() { r.read(ctx, client, s.edges[0].addr, short) })
	}
	asking.Wait()
	return all
}

// ttft returns the 99th percentile of the time to the first token of the readers that have one.
func ttft(all []*reader) time.Duration {
	var times []time.Duration
	for _, r := range all {
		if !r.begun.IsZero() {
			times = append(times, r.begun.Sub(r.asked))
		}
	}
	return p99(times)
}

// p99 returns the 99th percentile, or 0 of no durations.
func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// unanswered returns the number of readers whose answer is not complete.
func unanswered(all []*reader) (n int) {
	for _, r := range all {
		if r.ending != completed {
			n++
		}
	}
	return n
}

// noise is the difference between two percentiles that the rows ignore: a step of the simulated
// engine takes up to 33 ms with 500 streams, and a request begins at any time within one.
const noise = 35 * time.Millisecond

// growth returns by how many percent after exceeds before, beyond noise.
func growth(before, after time.Duration) float64 {
	return max(0, 100*float64(after-before-noise)/float64(before))
}

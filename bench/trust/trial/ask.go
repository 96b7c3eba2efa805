package trial

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/lab"
)

// short is the number of tokens of the requests of Ask.
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
func (t *Trial) client(key string) *http.Client {
	if key == "" {
		return t.HTTP
	}
	return &http.Client{Transport: keySender{key, t.HTTP.Transport}}
}

// Ask sends rate short requests a second for a while, beside the streams of the row, and returns
// their readers when all have ended.
func (t *Trial) Ask(ctx context.Context, key string, rate int, lasts time.Duration) []*reader.Reader {
	ctx, cancel := context.WithTimeout(ctx, lasts+lab.Patience)
	defer cancel()
	var all []*reader.Reader
	var asking sync.WaitGroup
	client := t.client(key)
	begun := time.Now()
	for i := range max(1, rate*int(lasts/time.Millisecond)/1000) {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		r := &reader.Reader{ID: "asks-" + strconv.FormatInt(t.asked.Add(1), 10)}
		all = append(all, r)
		asking.Go(func() { t.read(ctx, client, r) })
	}
	asking.Wait()
	return all
}

// read reads a short request. Like a load balancer, it tries the next api-service if one cannot be
// connected to, or refuses the request because it drains.
func (t *Trial) read(ctx context.Context, client *http.Client, r *reader.Reader) {
	for _, e := range t.Edges {
		*r = reader.Reader{ID: r.ID}
		r.Read(ctx, client, e.Addr, short)
		if !r.Elsewhere() {
			return
		}
	}
}

// noise is the difference between two percentiles that the rows ignore: a step of the simulated
// engine takes up to 33 ms with 500 streams, and a request begins at any time within one.
const noise = 35 * time.Millisecond

// Growth returns by how many percent after exceeds before, beyond noise.
func Growth(before, after time.Duration) float64 {
	return max(0, 100*float64(after-before-noise)/float64(before))
}

// Beside returns the figures of the requests before and after a fault.
func Beside(before, after []*reader.Reader) []Finding {
	return []Finding{
		{What: "p99 time to first token of new requests, more than before beyond 35 ms", Got: Growth(reader.TTFT(before), reader.TTFT(after))},
		{What: "new requests that fail", Got: float64(reader.Unanswered(before) + reader.Unanswered(after))},
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// share is the number of streams that the tenant "noisy" may have at a time.
const share = 5

var overloadRows = []trial.Row{
	{Name: "one tenant sends five times its limit", Layout: lab.Layout{Workers: 1, Chats: 1, Edges: 1}, Prepare: withLimits, Tokens: 600, Spared: true, Play: overloaded},
	{Name: "ten times as many requests are opened and aborted in 10 s", Layout: lab.Layout{Workers: 1, Chats: 1, Edges: 1}, Play: openAndAbort},
}

// withLimits writes the keys of two tenants to a file that the api-services read. The streams of the
// row are those of the tenant without limits.
func withLimits(t *trial.Trial, l *lab.Layout) error {
	name := filepath.Join(t.Builds.Dir, "keys.yaml")
	t.Key = "others"
	l.Edge = append(slices.Clone(l.Edge), "--keys", name)
	text := fmt.Sprintf("tenants:\n  noisy: {streams: %d}\nkeys:\n  - {key: noisy, id: noisy, tenant: noisy}\n  - {key: others, id: others, tenant: others}\n", share)
	return os.WriteFile(name, []byte(text), 0o600)
}

// overloaded has one tenant send requests within its limit, then five times as many as the limit
// allows. A request of ask runs for about a quarter of a second, so share places serve rate a second.
func overloaded(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
	const rate, lasts = 4 * share, 10 * time.Second
	both := func(noisy int) (others, tenant []*reader.Reader) {
		done := make(chan []*reader.Reader, 1)
		go func() { done <- t.Ask(ctx, "noisy", noisy, lasts) }()
		others = t.Ask(ctx, "others", 20, lasts)
		return others, <-done
	}
	before, _ := both(rate / 2)    // within the limit
	after, noisy := both(5 * rate) // five times the limit
	var refusals []time.Duration
	other := 0
	for _, r := range noisy {
		switch {
		case r.Ending == reader.Refused && r.Err.Reason == streamerr.Overloaded:
			refusals = append(refusals, r.Over.Sub(r.Asked))
		case r.Ending != reader.Completed:
			other++
		}
	}
	if len(refusals) == 0 {
		return nil, errors.New("no request of the tenant over its limit was refused")
	}
	t.Finish()
	return []trial.Finding{
		{What: "p99 time to first token of the others, more than before beyond 35 ms", Got: trial.Growth(reader.TTFT(before), reader.TTFT(after))},
		{What: "request over the limit until its 429, p99", Got: trial.InMillis(reader.P99(refusals))},
		{What: "requests of the others that fail", Got: float64(reader.Unanswered(before) + reader.Unanswered(after))},
		{What: "requests of the tenant that end with neither an answer nor a 429", Got: float64(other)},
	}, nil
}

// Package accounts checks that all views of a stream show the same, correct figures: it compares
// the records of all hops, the story, the list of streams and the metrics with the counts of fake
// engines.
//
// All code between the edge and the engines is real, over gRPC within this process and in virtual
// time, so that a busy machine cannot shorten a stop.
package accounts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/api-service/story"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A clientView is the client's view of a stream.
type clientView struct {
	tokens int // according to the messages written to the client
	usage  *llmv1.Usage
	reason streamerr.Reason
}

// drive sends a request through the path like an edge, and returns when the stream has ended.
func (p *path) drive(ctx context.Context, c *plan) (s clientView) {
	ctx, end, err := p.edge.Begin(ctx, &c.req.StreamId, "", "client:1", func() *streamerr.Error {
		return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client")}
	})
	if err != nil {
		panic(err)
	}
	defer end()
	gone := &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client"), Message: "the test says so"}
	if c.leaveAfter > 0 {
		timer := time.AfterFunc(c.leaveAfter, func() { stream.ControlOf(ctx).Stop(gone) })
		defer timer.Stop()
	}
	written := 0
	o := rpc.Drive(ctx, p.edge, methods.Chat, p.chat, c.req, func(out *chatv1.GenerateResponse) error {
		time.Sleep(c.reads)
		if written++; written == c.breakAt {
			return gone
		}
		s.tokens += methods.Chat.Tokens(out)
		if end := out.GetEnd(); end != nil {
			s.usage = end.GetUsage()
		}
		return nil
	})
	s.reason = o.Reason()
	return s
}

// TestAllViewsAgreeWithTheEngines sends many random streams concurrently, and compares all views of
// each stream.
func TestAllViewsAgreeWithTheEngines(t *testing.T) {
	const streams = 150
	seed := uint64(time.Now().UnixNano())
	if testing.Short() {
		seed = 1
	}
	t.Logf("seed %d", seed)
	m, err := metrics.New("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := newPath(t, m)
		plans := make([]*plan, streams)
		results := make([]clientView, streams)
		var all sync.WaitGroup
		for i := range plans {
			plans[i] = p.plan(r, i)
			all.Go(func() {
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
				results[i] = p.drive(t.Context(), plans[i])
			})
		}
		all.Wait()
		p.settle()

		var want totals
		kinds := map[string]int{}
		for i, c := range plans {
			kinds[c.kind+" "+results[i].reason.String()]++
			want.add(p.check(t, c, results[i]))
		}
		t.Logf("%v; %d moves", kinds, p.moves())
		want.check(t, scrape(t, m))
		if p.moves() < streams/10 {
			t.Errorf("there were %d moves among %d streams: too few for a meaningful test", p.moves(), streams)
		}
	})
}

// check compares the views of one stream, and returns its figures.
func (p *path) check(t *testing.T, c *plan, s clientView) story.Tokens {
	t.Helper()
	id := c.req.GetStreamId()
	edge := ledger.At(p.edge).Get(id)
	records := []*streamv1.Record{edge}
	if r := ledger.At(p.middle).Get(id); r != nil {
		records = append(records, r)
	}
	below := 0 // tokens generated according to the workers
	for _, part := range c.parts() {
		for _, w := range p.workers {
			if r := ledger.At(w.hop).Get(part); r != nil {
				records = append(records, r)
			}
			for _, r := range ledger.At(w.hop).Ended(1<<20, func(r *streamv1.Record) bool { return r.GetStreamId() == part }) {
				below += int(r.GetTokensIn()) // a stream may have used a worker twice
			}
		}
	}
	why := story.New(records)
	if listed := only(t, story.List([]*streamv1.Record{edge}, "")); !same(listed, why.Tokens) {
		t.Errorf("%s: the list has %+v, the story %+v", c, listed, why.Tokens)
	}
	got := why.Tokens
	truth := p.scripts.generated(c)
	fail := func(format string, a ...any) {
		t.Helper()
		t.Errorf("%s ended %v: %s; %+v, %d of %d tokens at the client", c, s.reason, fmt.Sprintf(format, a...), got, s.tokens, truth)
	}
	if int(got.Generated) != truth {
		fail("the engines generated %d", truth)
	}
	if below != truth {
		fail("the workers say %d", below)
	}
	if len(records) > 1 && int(records[1].GetTokensIn()) != truth {
		fail("chat-service says %d were generated", records[1].GetTokensIn())
	}
	if int(got.Delivered) != s.tokens || got.Wasted != got.Generated-got.Delivered {
		fail("delivered and wasted are wrong")
	}
	if s.reason == streamerr.Completed {
		if u := s.usage; u.GetCompletionTokens() != got.Delivered || u.GetPromptTokens() != got.Prompt || got.Cached == nil || *got.Cached != u.GetCachedTokens() || u.GetCachedTokens() != c.cached {
			fail("the client's usage is %v, but %d tokens are cached", u, c.cached)
		}
		if c.whole && got.Wasted != 0 {
			fail("something was wasted of an answer that was delivered whole")
		}
	}
	if got.Prompt != 0 && int(got.Prompt) != p.scripts.prompt(c) || s.tokens > 0 && got.Prompt == 0 {
		fail("the prompt has %d tokens", p.scripts.prompt(c))
	}
	return got
}

func only(t *testing.T, list []byte) story.Tokens {
	t.Helper()
	var all struct{ Streams []story.Story }
	if err := json.Unmarshal(list, &all); err != nil || len(all.Streams) != 1 {
		t.Fatalf("%v: %s", err, list)
	}
	return all.Streams[0].Tokens
}

func same(a, b story.Tokens) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// totals holds the figures of all streams.
type totals struct{ prompt, cached, generated, delivered, wasted int }

func (t *totals) add(s story.Tokens) {
	t.prompt += int(s.Prompt)
	t.generated += int(s.Generated)
	t.delivered += int(s.Delivered)
	t.wasted += int(s.Wasted)
	if s.Cached != nil {
		t.cached += int(*s.Cached)
	}
}

// check compares the totals with the metrics of the edge.
func (t *totals) check(test *testing.T, sum func(name string, labels ...string) int) {
	test.Helper()
	const hop = `hop="api-service"`
	for _, want := range []struct {
		what  string
		value int
		name  string
		label string
	}{
		{"prompt", t.prompt, "gen_ai_client_token_usage_sum", `gen_ai_token_type="input"`},
		{"delivered", t.delivered, "gen_ai_client_token_usage_sum", `gen_ai_token_type="output"`},
		{"generated", t.generated, "whence_tokens_total", `direction="recv"`},
		{"delivered", t.delivered, "whence_tokens_total", `direction="send"`},
		{"wasted", t.wasted, "whence_tokens_wasted_total", ""},
		{"cached", t.cached, "whence_tokens_cached_total", ""},
	} {
		if got := sum(want.name, hop, want.label); got != want.value {
			test.Errorf("%s of all streams is %d in the stories, but %d in %s{%s}", want.what, want.value, got, want.name, want.label)
		}
	}
	if t.wasted == 0 || t.cached == 0 {
		test.Errorf("%+v: some figures are 0, so the streams do not test them", *t)
	}
}

// scrape returns a function that sums a metric over the series with all of some labels.
func scrape(t *testing.T, m *metrics.Metrics) func(name string, labels ...string) int {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	lines := strings.Split(w.Body.String(), "\n")
	return func(name string, labels ...string) (sum int) {
		for _, line := range lines {
			series, value, _ := strings.Cut(line, "} ")
			rest, found := strings.CutPrefix(series, name+"{")
			for _, label := range labels {
				found = found && strings.Contains(rest, label)
			}
			if found {
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Fatal(err)
				}
				sum += int(n)
			}
		}
		return sum
	}
}

// settle waits until every hop has ended every stream.
func (p *path) settle() {
	hops := []*rpc.Hop{p.edge, p.middle}
	for _, w := range p.workers {
		hops = append(hops, w.hop)
	}
	for _, h := range hops {
		for len(ledger.At(h).Live()) > 0 {
			time.Sleep(time.Second)
		}
	}
}

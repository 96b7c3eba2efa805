package ledger_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/usage"
)

// A sink keeps the records that are written to it.
type sink struct{ got []usage.Record }

func (*sink) Name() string                { return "file" }
func (*sink) Close(context.Context) error { return nil }
func (s *sink) Write(_ context.Context, records []usage.Record) (int, error) {
	s.got = append(s.got, records...)
	return len(records), nil
}

// TestEstimatesAreMarked: the tokens of a stream are estimates until the server has counted them.
func TestEstimatesAreMarked(t *testing.T) {
	for name, test := range map[string]struct {
		note func(r *ledger.Record)
		want bool
	}{
		"counted from the start": {func(r *ledger.Record) { r.Started(&llmv1.Started{PromptTokens: 7}) }, false},
		"stopped":                {func(r *ledger.Record) { r.Started(&llmv1.Started{PromptTokens: 7, Estimated: true}) }, true},
		"counted at the end": {func(r *ledger.Record) {
			r.Started(&llmv1.Started{PromptTokens: 7, Estimated: true})
			r.Used(&llmv1.Usage{PromptTokens: 5})
		}, false},
		"never counted": {func(r *ledger.Record) {
			r.Started(&llmv1.Started{PromptTokens: 7, Estimated: true})
			r.Used(&llmv1.Usage{PromptTokens: 7, Estimated: true})
		}, true},
		"the second turn is counted": {func(r *ledger.Record) {
			for _, u := range []*llmv1.Usage{{PromptTokens: 7, Estimated: true}, {PromptTokens: 9}} {
				r.Started(&llmv1.Started{PromptTokens: 7, Estimated: true})
				r.Note(observer.Event{Kind: observer.Announced, Message: turnEnd(u)})
			}
		}, true},
	} {
		records := usageRecords(t, func(l *ledger.Ledger) {
			r, _ := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "api-service", First: true}).(*ledger.Record)
			test.note(r)
			r.End(streamerr.Completed, streamerr.NewPath("engine"), "")
			r.Close()
		})
		if len(records) != 1 || records[0].Estimated != test.want {
			t.Errorf("%s: %+v", name, records)
		}
	}
}

// usageRecords calls use with a ledger, and returns the usage records that it wrote.
func usageRecords(t *testing.T, use func(l *ledger.Ledger)) []usage.Record {
	t.Helper()
	var to sink
	lost := 0
	out := usage.NewLog(slog.New(slog.DiscardHandler), func(_ string, gone bool, n int) {
		if gone {
			lost += n
		}
	}, &to)
	l := &ledger.Ledger{Usage: out}
	use(l)
	l.Settle()
	if err := out.Close(t.Context()); err != nil || lost > 0 {
		t.Fatal(err, lost)
	}
	return to.got
}

func note(r observer.Flow, kinds ...observer.Kind) {
	for _, k := range kinds {
		r.Note(observer.Event{Kind: k, Reason: streamerr.PeerLost, Path: streamerr.NewPath("api", "hop"), Err: &streamerr.Error{Reason: streamerr.PeerLost}})
	}
}

// TestRecordIsWrittenByTheAccountableHop: by the first hop always, by another hop only if its
// caller vanished before it was told the ending, and after the stream's abandoned calls are over.
func TestRecordIsWrittenByTheAccountableHop(t *testing.T) {
	const calling, left, gone, ended = observer.Calling, observer.CalleeLeft, observer.CalleeGone, observer.Ended
	const callerLost, told = observer.CallerLost, observer.EndingSent
	for name, test := range map[string]struct {
		first         bool
		before, after []observer.Kind // the end of the stream
		want          []usage.Kind    // after the end of the stream, without Settle
	}{
		"first hop":                         {true, []observer.Kind{ended, told}, nil, []usage.Kind{usage.Final}},
		"first hop, client gone":            {true, []observer.Kind{callerLost, ended}, nil, []usage.Kind{usage.Final}},
		"another hop":                       {false, []observer.Kind{ended, told}, nil, nil},
		"another hop, caller vanished":      {false, []observer.Kind{callerLost, ended}, nil, []usage.Kind{usage.Orphan}},
		"another hop, told, then vanished":  {false, []observer.Kind{told, callerLost, ended}, nil, nil},
		"another hop, caller has reset":     {false, []observer.Kind{ended}, nil, nil},
		"a call that was left is over":      {true, []observer.Kind{calling, left, gone, ended, told}, nil, []usage.Kind{usage.Final}},
		"a call that was left ends later":   {true, []observer.Kind{calling, left, ended, told}, []observer.Kind{gone}, []usage.Kind{usage.Final}},
		"two calls that were left end late": {true, []observer.Kind{calling, left, calling, left, ended}, []observer.Kind{gone, gone}, []usage.Kind{usage.Final}},
		"a call that was left never ends":   {true, []observer.Kind{calling, left, ended, told}, nil, []usage.Kind{usage.Final}}, // written by Settle
	} {
		t.Run(name, func(t *testing.T) {
			got := usageRecords(t, func(l *ledger.Ledger) {
				r := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "hop", First: test.first})
				note(r, test.before...)
				r.Close()
				note(r, test.after...)
			})
			var kinds []usage.Kind
			for _, r := range got {
				kinds = append(kinds, r.Kind)
			}
			if !slices.Equal(kinds, test.want) {
				t.Errorf("%v, want %v", kinds, test.want)
			}
		})
	}
}

// TestNoRecordWaitsForACallThatIsOver: the end of a stream and the end of its abandoned call meet, while
// others use the ledger.
func TestNoRecordWaitsForACallThatIsOver(t *testing.T) {
	out := usage.NewLog(slog.New(slog.DiscardHandler), func(string, bool, int) {}, new(sink))
	l := &ledger.Ledger{Usage: out, Max: 10}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				r := l.Begin(t.Context(), observer.Beginning{ID: "a", First: true})
				note(r, observer.Calling, observer.CalleeLeft, observer.Ended)
				var both sync.WaitGroup
				both.Go(r.Close)
				both.Go(func() { note(r, observer.CalleeGone) })
				for range 20 {
					l.Owed()
				}
				both.Wait()
			}
		})
	}
	all.Wait()
	if n := l.Owed(); n > 0 {
		t.Errorf("%d records wait", n)
	}
	if err := out.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRecordOfOneOfSeveralChoicesNamesTheWholeStream: and the tenant and key of the request's
// claim.
func TestRecordOfOneOfSeveralChoicesNamesTheWholeStream(t *testing.T) {
	got := usageRecords(t, func(l *ledger.Ledger) {
		r := l.Begin(context.Background(), observer.Beginning{ID: "a.1", Hop: "llm-worker/0"})
		r.Note(observer.Event{Kind: observer.Running, Message: &workerv1.TokenRequest{Claim: &llmv1.Claim{Tenant: "t", Key: "k", Whole: "a"}}})
		r.Note(observer.Event{Kind: observer.Announced, Message: &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{
			Started: &llmv1.Started{Model: "m", PromptTokens: 3},
		}}})
		note(r, observer.CallerLost, observer.Ended)
		r.Close()
	})
	if len(got) != 1 {
		t.Fatal(got)
	}
	if r := got[0]; r.ID != "a" || r.Part != "a.1" || r.Tenant != "t" || r.Key != "k" || r.Worker != "llm-worker/0" || r.Model != "m" || r.Prompt != 3 {
		t.Errorf("%+v", r)
	}
}

// TestUsageRecordMatchesTheLedger: whatever happens to a stream, its usage record has the same
// figures as the ledger, which `why` prints and the metrics sum.
func TestUsageRecordMatchesTheLedger(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var want ledger.Tokens
		var story struct {
			reason string
			path   []string
		}
		got := usageRecords(t, func(l *ledger.Ledger) {
			r, _ := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "api-service", First: true}).(*ledger.Record)
			r.Charge("t", "k", "chat")
			r.Started(&llmv1.Started{Model: "m", PromptTokens: random.Uint32N(100)})
			left := 0
			for range random.IntN(30) {
				n := random.IntN(4)
				switch random.IntN(6) {
				case 0, 1:
					r.Received(n, nil)
				case 2, 3:
					r.Received(n, nil)
					r.Sent(n, nil)
				case 4:
					r.TakenBack(min(n, int(ledger.TokensOf(l.Get("a")).Delivered)))
				default:
					note(r, observer.Calling, observer.CalleeLeft)
					left++
				}
			}
			if random.IntN(2) == 0 {
				r.Used(&llmv1.Usage{PromptTokens: 7, CachedTokens: new(random.Uint32N(7))})
			}
			r.End(streamerr.Reason(random.IntN(17)+1), streamerr.NewPath("client", "api-service"), "")
			r.Close()
			for range left {
				r.Note(observer.Event{Kind: observer.Unreceived, Tokens: random.IntN(5)})
				note(r, observer.CalleeGone)
			}
			record := l.Get("a")
			want = ledger.TokensOf(record)
			story.reason, story.path = streamerr.Reason(record.GetReason()).String(), record.GetPath()
		})
		if len(got) != 1 {
			t.Fatalf("seed %d: %d records", seed, len(got))
		}
		r := got[0]
		cached := func(n *uint32) int64 {
			if n == nil {
				return -1
			}
			return int64(*n)
		}
		if r.Prompt != want.Prompt || cached(r.Cached) != cached(want.Cached) || r.Generated != want.Generated || r.Delivered != want.Delivered || r.Wasted != want.Wasted() {
			t.Errorf("seed %d: %+v, want %+v", seed, r, want)
		}
		if r.Wasted+r.Delivered != r.Generated || r.Reason != story.reason || !slices.Equal(r.Path, story.path) || r.Origin != "client" {
			t.Errorf("seed %d: %+v, want %+v", seed, r, story)
		}
	}
}

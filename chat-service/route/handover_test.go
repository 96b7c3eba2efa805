package route

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func reader(name string) *fake {
	return &fake{name: name, role: llmv1.Role_ROLE_PREFILL, over: `{"do_remote_prefill":true, "remote_engine_id":"` + name + `"}`}
}

func answerer(name string) *fake { return &fake{name: name, role: llmv1.Role_ROLE_DECODE} }

// readWithRecord reads a stream, and also returns its record.
func readWithRecord(ctx context.Context, p *Pool, req *workerv1.TokenRequest, each func(tokens int)) (result, *streamv1.Record) {
	var kept ledger.Ledger
	r := read(ledger.With(ctx, kept.Open("id", "chat", "")), p, req, each)
	return r, kept.Get("id")
}

func handover(from, to string, reason streamv1.Reason) *streamv1.Handover {
	return &streamv1.Handover{From: from, To: to, Reason: reason}
}

func checkHandovers(t *testing.T, r *streamv1.Record, want ...*streamv1.Handover) {
	t.Helper()
	same := func(a, b *streamv1.Handover) bool {
		return a.GetFrom() == b.GetFrom() && a.GetTo() == b.GetTo() && a.GetReason() == b.GetReason()
	}
	if !slices.EqualFunc(r.GetHandovers(), want, same) {
		t.Errorf("the record has %v, want %v", r.GetHandovers(), want)
	}
}

func TestPoolThatHandsOverKeepsTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
		fakes := []*fake{reader("r/0"), answerer("w/0"), answerer("w/1")}
		p := poolOf(t, Options{Migrations: 3, MigrateAfter: time.Second}, fakes...)
		for i, w := range p.Members() {
			long := info(w.Name())
			long.ContextLength, long.Role = 1<<30, fakes[i].role
			w.Say(long)
		}
		return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
			Engine: p.Start,
			Short:  func() *workerv1.TokenRequest { return ask(3) },
			Long:   func() *workerv1.TokenRequest { return ask(60) },
			Bad:    func() *workerv1.TokenRequest { return &workerv1.TokenRequest{} },
			Live:   func() int { return fakes[0].running() + fakes[1].running() + fakes[2].running() },
		}
	})
}

func TestPrefillAndDecodeOnSeparateWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w"}), ask(12), nil)
		reads, answers := reader("r/0"), answerer("w/0")
		p := poolOf(t, Options{Migrations: 3, MigrateAfter: time.Second}, reads, answers)
		got, record := readWithRecord(t.Context(), p, ask(12), nil)
		got.same(t, want)
		checkHandovers(t, record, handover("r/0", "w/0", streamv1.Reason_REASON_COMPLETED))
		if took := record.GetHandovers()[0].GetTook().AsDuration(); took != 10*time.Millisecond {
			t.Error("it took", took)
		}
		if len(reads.asked) != 1 || len(answers.asked) != 1 {
			t.Fatal(reads.asked, answers.asked)
		}
		if asked := reads.asked[0]; !asked.GetKvTransfer().GetAsk() || asked.GetSampling().GetMaxTokens() != 1 || !slices.Equal(asked.GetPrompt(), []uint32{7, 8, 9}) {
			t.Error("asked to read:", asked)
		}
		if asked := answers.asked[0]; string(asked.GetKvTransfer().GetParameters()) != reads.over || asked.GetSampling().GetMaxTokens() != 12 {
			t.Error("asked to answer:", asked)
		}
		for _, w := range p.Members() {
			if s := w.Snapshot(time.Now()); w.Load() != 0 || s.Unread != 0 || s.Tokens != 0 {
				t.Errorf("%s still has %d streams, %d tokens to read, and %d", w.Name(), w.Load(), s.Unread, s.Tokens)
			}
		}
		if found := len(record.GetEvents()); found != 0 { // no trace is recorded here
			t.Error(found)
		}
	})
}

// However the prefill worker fails, the decode worker reads the prompt itself, and the client
// notices no difference.
func TestDecodeWorkerReadsThePromptIfPrefillFails(t *testing.T) {
	failing := func(err func(*fake) error, at int) *fake {
		f := reader("r/0")
		f.fault = func(tokens int) error {
			if tokens == at {
				return err(f)
			}
			return nil
		}
		return f
	}
	is := func(reason streamerr.Reason) func(*fake) error {
		return func(*fake) error { return streamerr.New(reason, "it fails") }
	}
	mute, both := reader("r/0"), &fake{name: "r/0"}
	mute.over = ""
	for name, c := range map[string]struct {
		reads  *fake
		from   string
		reason streamerr.Reason
	}{
		"there is none":                {both, "", streamerr.Unavailable},
		"lost":                         {failing(lostBy, 0), "r/0", streamerr.PeerLost},
		"lost before Started":          {failing(lostBy, -1), "r/0", streamerr.PeerLost},
		"reset":                        {failing(is(streamerr.PeerReset), 0), "r/0", streamerr.PeerReset},
		"draining":                     {failing(is(streamerr.Draining), -1), "r/0", streamerr.Draining},
		"overloaded":                   {failing(is(streamerr.Overloaded), -1), "r/0", streamerr.Overloaded},
		"its engine fails":             {failing(is(streamerr.EngineFailed), 0), "r/0", streamerr.EngineFailed},
		"it refuses":                   {failing(is(streamerr.Invalid), -1), "r/0", streamerr.Invalid},
		"it hangs":                     {failing(func(*fake) error { return errHang }, -1), "r/0", streamerr.Deadline},
		"it is deaf":                   {failing(func(*fake) error { return errDeaf }, -1), "r/0", streamerr.Deadline},
		"it hands over nothing useful": {mute, "r/0", streamerr.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w"}), ask(12), nil)
				answers := answerer("w/0")
				p := poolOf(t, Options{Migrations: 3, MigrateAfter: time.Second, Policy: inOrder}, answers, c.reads)
				got, record := readWithRecord(t.Context(), p, ask(12), nil)
				got.same(t, want)
				checkHandovers(t, record, handover(c.from, "w/0", c.reason.Proto()))
				if len(answers.asked) != 1 || answers.asked[0].GetKvTransfer() != nil || len(record.GetMoves()) != 0 {
					t.Error(answers.asked, record.GetMoves())
				}
				p.calls.Wait()
				for _, w := range p.Members() {
					if s := w.Snapshot(time.Now()); w.Load() != 0 || s.Unread != 0 {
						t.Errorf("%s still has %d streams, and %d tokens to read", w.Name(), w.Load(), s.Unread)
					}
				}
			})
		})
	}
}

// A worker that hangs while it reads is left when its health probes fail, but not earlier: prompts
// and queues are long.
func TestReaderThatHangsIsLeftWhenItIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, answers := reader("r/0"), answerer("w/0")
		reads.fault = func(tokens int) error {
			if tokens == 0 {
				return errHang
			}
			return nil
		}
		p := poolOf(t, Options{MigrateAfter: time.Second}, reads, answers)
		time.AfterFunc(4500*time.Millisecond, func() { p.Members()[0].Say(nil) })
		got, record := readWithRecord(t.Context(), p, ask(3), nil)
		checkHandovers(t, record, handover("r/0", "w/0", streamv1.Reason_REASON_UNAVAILABLE))
		if got.err != nil || got.took < 4500*time.Millisecond || got.took > 4600*time.Millisecond {
			t.Error(got.err, got.took)
		}
		p.calls.Wait()
	})
}

// A prefill worker that admitted a prompt and takes too long may have a long queue: the stream
// leaves it, and it still gets prompts.
func TestSlowReaderIsLeftWithoutBlame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, answers := hangsAt("r/0", 0), answerer("w/0")
		reads.role = llmv1.Role_ROLE_PREFILL
		p := poolOf(t, Options{MigrateAfter: time.Second, FirstTokenMove: 5 * time.Second}, reads, answers)
		got, record := readWithRecord(t.Context(), p, ask(3), nil)
		checkHandovers(t, record, handover("r/0", "w/0", streamv1.Reason_REASON_DEADLINE))
		if got.err != nil || got.took < 5*time.Second || !good(p.Members()[0]) {
			t.Error(got.err, got.took, good(p.Members()[0]))
		}
		p.calls.Wait()
	})
}

func TestStopDuringPrefillReachesThePrefillWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, answers := reader("r/0"), answerer("w/0")
		p := poolOf(t, Options{MigrateAfter: time.Second}, reads, answers)
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		defer ctl.Release()
		cause := &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client", "edge")}
		timer := time.AfterFunc(5*time.Millisecond, func() { ctl.Stop(cause) })
		defer timer.Stop()
		got, record := readWithRecord(ctx, p, ask(12), nil)
		got.failed(t, streamerr.ClientGone, "client > edge")
		if got.took != 5*time.Millisecond || len(reads.causes) != 1 || !errors.Is(reads.causes[0], streamerr.ClientGone) || len(answers.asked) != 0 || got.started != 0 {
			t.Error(got.took, reads.causes, answers.asked, got.started)
		}
		checkHandovers(t, record)
		for _, w := range p.Members() {
			if w.Load() != 0 {
				t.Errorf("%s still has %d streams", w.Name(), w.Load())
			}
		}
	})
}

func TestDecodeWorkerLostAfterAHandoverIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w"}), ask(12), nil)
		reads, first, second := reader("r/0"), answerer("w/0"), answerer("w/1")
		first.fault = func(tokens int) error {
			if tokens == 5 {
				return lostBy(first)
			}
			return nil
		}
		p := poolOf(t, Options{Migrations: 3, MigrateAfter: time.Second, Policy: inOrder}, reads, first, second)
		got, record := readWithRecord(t.Context(), p, ask(12), nil)
		got.same(t, want)
		done := streamv1.Reason_REASON_COMPLETED
		checkHandovers(t, record, handover("r/0", "w/0", done), handover("r/0", "w/1", done))
		if len(record.GetMoves()) != 1 || len(reads.asked) != 2 || len(reads.asked[1].GetPrompt()) != 8 || reads.asked[1].GetGenerated() != 0 {
			t.Error(record.GetMoves(), reads.asked)
		}
		if asked := second.asked[0]; asked.GetGenerated() != 5 || string(asked.GetKvTransfer().GetParameters()) != reads.over {
			t.Error(asked)
		}
	})
}

func TestOnlyWorkersThatAnswerGetStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := reader("r/0")
		p := poolOf(t, Options{MigrateAfter: time.Second}, reads)
		got, _ := readWithRecord(t.Context(), p, ask(3), nil)
		got.failed(t, streamerr.Unavailable, "")
		if _, up := p.Room(); len(reads.asked) != 0 || p.Context() != 0 || up {
			t.Error(reads.asked, p.Context(), up)
		}
		// A worker with both roles reads its own prompts.
		whole := &fake{name: "w/0"}
		got, record := readWithRecord(t.Context(), poolOf(t, Options{MigrateAfter: time.Second}, reads, whole), ask(3), nil)
		if checkHandovers(t, record); got.err != nil || len(reads.asked) != 0 || len(whole.asked) != 1 {
			t.Error(got.err, reads.asked, whole.asked)
		}
	})
}

func TestShortPromptsAreNotHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for above, handed := range map[int]int{0: 1, 2: 1, 3: 0, 100: 0} {
			reads, answers := reader("r/0"), answerer("w/0")
			p := poolOf(t, Options{MigrateAfter: time.Second, HandoverAbove: above}, reads, answers)
			if got, record := readWithRecord(t.Context(), p, ask(3), nil); got.err != nil || len(record.GetHandovers()) != handed || len(reads.asked) != handed {
				t.Errorf("above %d: %v, %v", above, got.err, record.GetHandovers())
			}
		}
	})
}

func TestCachedTokensAreThoseOfThePrefillWorker(t *testing.T) {
	for _, c := range []struct{ found, engine, want uint32 }{{0, 15, 0}, {8, 15, 8}, {8, 0, 0}} {
		u := &llmv1.Usage{CachedTokens: new(c.engine)}
		(&attempt{found: &c.found, expected: -1}).complete(u)
		if u.GetCachedTokens() != c.want || u.ExpectedCachedTokens != nil {
			t.Errorf("%+v: %v", c, u)
		}
	}
}

func TestReadersTakeTurnsWhileTheyHaveAsMuchToRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := reader("r/0"), reader("r/1")
		p := poolOf(t, Options{MigrateAfter: time.Second}, a, b, answerer("w/0"), answerer("w/1"))
		for range 10 {
			if r := read(t.Context(), p, ask(1), nil); r.err != nil {
				t.Fatal(r.err)
			}
		}
		if len(a.asked) != 5 || len(b.asked) != 5 {
			t.Errorf("%d and %d of ten", len(a.asked), len(b.asked))
		}
	})
}

package route

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvcache"
	"github.com/whence-dev/whence/chat-service/route/policy"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// embeds makes the workers of p return vectors, or fail with the next of errs. It returns the
// indexes of the workers that were called.
func embeds(p *Pool, errs ...error) (asked *[]int) {
	asked = new([]int)
	var mu sync.Mutex
	for i, w := range p.Members() {
		said := info(w.Name())
		said.Embeds = true
		w.Say(said)
		w.PretendEmbeds(stream.Unary(func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
			mu.Lock()
			*asked = append(*asked, i)
			mu.Unlock()
			return &workerv1.EmbedResponse{Model: w.Name()}, errs[i]
		}))
	}
	return asked
}

func text(tokens int) *workerv1.EmbedRequest {
	return &workerv1.EmbedRequest{Model: "m", Inputs: []*workerv1.TokenIds{{Ids: make([]uint32, tokens)}}}
}

func TestEmbeddingIsRetriedOnAnotherWorker(t *testing.T) {
	failed := func(reason streamerr.Reason) error { return streamerr.New(reason, "as scripted") }
	for name, c := range map[string]struct {
		errs  []error
		want  streamerr.Reason // Completed if the request succeeds
		asked int
	}{
		"the first":          {[]error{nil, nil}, streamerr.Completed, 1},
		"lost":               {[]error{failed(streamerr.PeerLost), nil}, streamerr.Completed, 2},
		"full":               {[]error{failed(streamerr.Overloaded), nil}, streamerr.Completed, 2},
		"drains":             {[]error{failed(streamerr.Draining), nil}, streamerr.Completed, 2},
		"both are lost":      {[]error{failed(streamerr.PeerLost), failed(streamerr.PeerLost)}, streamerr.Unavailable, 2},
		"both are full":      {[]error{failed(streamerr.Overloaded), failed(streamerr.Overloaded)}, streamerr.Overloaded, 2},
		"the request's own":  {[]error{streamerr.InvalidParam("inputs", "x"), nil}, streamerr.Invalid, 1},
		"the engine's fault": {[]error{failed(streamerr.EngineFailed), nil}, streamerr.Completed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf(t, Options{Policy: inOrder}, &fake{name: "w0"}, &fake{name: "w1"})
			asked := embeds(p, c.errs...)
			var kept ledger.Ledger
			record := kept.Open("id", "chat", "")
			_, err := p.Embed(ledger.With(t.Context(), record), text(3))
			if got := streamerr.As(err); (err == nil) != (c.want == streamerr.Completed) || err != nil && got.Reason != c.want || len(*asked) != c.asked {
				t.Errorf("%v after asking %v", err, *asked)
			}
			if moves := record.Proto().GetMoves(); len(moves) != c.asked-1 {
				t.Errorf("the record has %v", moves)
			}
			for _, w := range p.Members() {
				if s := w.Snapshot(time.Now()); w.Load() != 0 || s.Unread != 0 || s.Tokens != 0 {
					t.Error("a request is still counted")
				}
			}
		})
	}
}

func TestStoppedEmbeddingIsNotRetried(t *testing.T) {
	p := poolOf(t, Options{Policy: inOrder}, &fake{name: "w0"}, &fake{name: "w1"})
	asked := embeds(p, nil, nil)
	ctx, ctl := stream.WithControl(t.Context(), 0)
	defer ctl.Release()
	cause := streamerr.New(streamerr.ClientGone, "left")
	p.Members()[0].PretendEmbeds(stream.Unary(func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
		ctl.Stop(cause)
		return nil, streamerr.New(streamerr.PeerLost, "and it is lost, too")
	}))
	if _, err := p.Embed(ctx, text(1)); err == nil || len(*asked) != 0 {
		t.Error(err, *asked)
	}
}

func TestEmbeddingGoesToWorkersThatEmbed(t *testing.T) {
	p := poolOf(t, Options{Policy: inOrder}, &fake{name: "w0"}, &fake{name: "w1"})
	asked := embeds(p, nil, nil)
	p.Members()[0].Say(info("w0"))
	if _, err := p.Embed(t.Context(), text(1)); err != nil || len(*asked) != 1 || (*asked)[0] != 1 {
		t.Error(*asked, err)
	}
	refused := func(tokens int) *streamerr.Error {
		_, err := p.Embed(t.Context(), text(tokens))
		return streamerr.As(err)
	}
	if e := refused(contextLength + 1); e.Reason != streamerr.Invalid || e.Param != "inputs" {
		t.Error(e)
	}
	p.Members()[1].Say(nil) // an unhealthy worker may come back
	if e := refused(1); e.Reason != streamerr.Unavailable {
		t.Error(e)
	}
	p.Members()[1].Say(info("w1"))
	if e := refused(1); e.Reason != streamerr.Invalid || e.Param != "model" {
		t.Error(e)
	}
	p.Members()[0].Say(nil)
	p.Members()[1].Say(nil)
	if e := refused(1); !errors.Is(e, streamerr.Unavailable) {
		t.Error(e)
	}
}

func TestPoolOfEmbeddersKeepsTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.EmbedRequest, *workerv1.EmbedResponse] {
		p := poolOf(t, Options{Policy: named(policy.LeastLoaded)}, &fake{name: "w0"}, &fake{name: "w1"})
		embeds(p, nil, nil)
		return streamtest.Subject[*workerv1.EmbedRequest, *workerv1.EmbedResponse]{
			Engine: stream.Unary(p.Embed),
			Short:  func() *workerv1.EmbedRequest { return text(2) },
			Bad:    func() *workerv1.EmbedRequest { return text(contextLength + 1) },
			Live: func() (n int) {
				for _, w := range p.Members() {
					n += int(w.Load())
				}
				return n
			},
		}
	})
}

// Every policy can choose a worker although there is no prompt.
func TestPoliciesSpreadEmbeddings(t *testing.T) {
	policies := map[string]Options{"kv": {KV: kvcache.New(kvcache.Options{}), Policy: named(policy.KV)}}
	for _, name := range []string{policy.LeastLoaded, "round-robin", "power-of-two", "session"} {
		chosen, err := policy.Parse(name, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		policies[name] = Options{Policy: chosen}
	}
	for name, opts := range policies {
		t.Run(name, func(t *testing.T) {
			p := poolOf(t, opts, &fake{name: "w0"}, &fake{name: "w1"})
			embeds(p, nil, nil)
			got := map[*fleet.Worker]int{}
			for range 40 {
				req := text(2)
				req.StreamId = stream.NewID()
				a, _ := p.findPooler(embedding(req), action{})
				got[a.worker]++
				defer a.charge.End()
			}
			if len(got) != 2 {
				t.Error(got)
			}
		})
	}
}

// scores makes the workers of p rate documents, or fail with the next of errs.
func scores(p *Pool, errs ...error) {
	for i, w := range p.Members() {
		said := info(w.Name())
		said.Scores, said.PoolsOnly, said.Capabilities = true, true, &llmv1.Capabilities{Upstream: "vllm"}
		w.Say(said)
		w.PretendScores(stream.Unary(func(context.Context, *workerv1.ScoreRequest) (*workerv1.ScoreResponse, error) {
			return &workerv1.ScoreResponse{Model: w.Name(), Scores: []float32{1}}, errs[i]
		}))
	}
}

func TestScoreIsRetriedOnAnotherWorker(t *testing.T) {
	p := poolOf(t, Options{Policy: inOrder}, &fake{name: "w0"}, &fake{name: "w1"})
	scores(p, streamerr.New(streamerr.PeerLost, "as scripted"), nil)
	req := &workerv1.ScoreRequest{Model: "m", Queries: []string{"q"}, Documents: []string{"a"}}
	if resp, err := p.Score(t.Context(), req); err != nil || resp.GetModel() != "w1" {
		t.Error(resp, err)
	}
	for _, w := range p.Members() {
		w.Say(info(w.Name()))
	}
	if _, err := p.Score(t.Context(), req); streamerr.As(err).Param != "model" || !errors.Is(err, streamerr.Invalid) {
		t.Error(err)
	}
}

// TestWorkersThatOnlyPoolGetNoChats: the refusal says what the model can do.
func TestWorkersThatOnlyPoolGetNoChats(t *testing.T) {
	p := poolOf(t, Options{Policy: inOrder}, &fake{name: "w0"}, &fake{name: "w1"})
	scores(p, nil, nil)
	chat := func() (got *streamerr.Error) {
		for _, err := range p.Generate(t.Context(), &workerv1.TokenRequest{Model: "m", Prompt: []uint32{1}, Sampling: &llmv1.Sampling{MaxTokens: new(uint32(1))}}) {
			if err != nil {
				return streamerr.As(err)
			}
		}
		return nil
	}
	if e := chat(); e == nil || e.Reason != streamerr.Invalid || e.Param != "model" || !strings.Contains(e.Message, "does not generate") || !strings.Contains(e.Message, "/v1/rerank") {
		t.Error(e)
	}
	p.Members()[1].Say(info("w1")) // generates
	if e := chat(); e != nil {
		t.Error(e)
	}
	p.Members()[1].Say(nil) // and may come back
	if e := chat(); e == nil || e.Reason != streamerr.Unavailable {
		t.Error(e)
	}
}
